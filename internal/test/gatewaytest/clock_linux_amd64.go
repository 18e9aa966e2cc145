package gatewaytest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// StepClock sets the running gateway's time of day ahead of the machine's, or back if ahead is negative, in whole seconds. The monotonic
// clock is not changed. 0 resets it.
//
// It replaces clock_gettime in the vDSO, which the kernel maps into the process, by a function that adds an offset.
func (g *Gateway) StepClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	maps, err := os.ReadFile(g.proc("maps"))
	require.NoError(tb, err)
	var from, to uint64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			require.NoError(tb, err)
		}
	}
	require.NotZero(tb, from, "the process has no vDSO")
	memory, err := os.OpenFile(g.proc("mem"), os.O_RDWR, 0)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, memory.Close()) }()
	image := make([]byte, to-from)
	_, err = memory.ReadAt(image, int64(from))
	require.NoError(tb, err)
	file, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(tb, err)
	symbols, err := file.DynamicSymbols()
	require.NoError(tb, err)
	var at, size uint64
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			at, size = from+s.Value, s.Size
		}
	}
	require.NotZero(tb, at, "the vDSO has no clock")
	code := binary.LittleEndian.AppendUint64(steppedClock(), uint64(int64(ahead/time.Second)))
	require.LessOrEqual(tb, uint64(len(code)), to-at)

	// No thread may be in the function while it changes.
	require.Eventually(tb, func() bool {
		g.Signal(tb, syscall.SIGSTOP)
		defer g.Signal(tb, syscall.SIGCONT)
		for deadline := time.Now().Add(5 * time.Second); !g.allStopped(); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				return false
			}
		}
		if !g.allOutside(at, at+max(size, uint64(len(code)))) {
			return false
		}
		_, err = memory.WriteAt(code, int64(at))
		return true
	}, time.Minute, time.Millisecond)
	require.NoError(tb, err)
}

// steppedClock is clock_gettime(2) with an offset in seconds, which follows it, for CLOCK_REALTIME:
//
//	mov eax, 228; syscall; test edi, edi; jnz end; mov rcx, [rip+6]; add [rsi], rcx; end: ret; nop; nop
func steppedClock() []byte {
	return []byte{
		0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a, 0x48, 0x8b, 0x0d, 6, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90,
	}
}

// allStopped reports whether all of the gateway's threads have stopped.
func (g *Gateway) allStopped() bool {
	return g.everyThread("stat", func(stat []byte) bool {
		// the state is behind the program's name
		_, state, ok := bytes.Cut(stat, []byte(") "))
		return ok && bytes.HasPrefix(state, []byte("T"))
	})
}

// allOutside reports whether all of the gateway's threads have stopped outside a range of its code.
func (g *Gateway) allOutside(from, to uint64) bool {
	return g.everyThread("syscall", func(where []byte) bool {
		// "running", or the system call, the stack pointer and the program counter
		fields := strings.Fields(string(where))
		pc, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		return err == nil && (pc < from || pc >= to)
	})
}

// everyThread reports whether the content of a file of proc(5) is as wanted for all of the gateway's threads.
func (g *Gateway) everyThread(file string, wanted func([]byte) bool) bool {
	files, err := filepath.Glob(g.proc("task/*/" + file))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, name := range files {
		if content, err := os.ReadFile(name); err != nil || !wanted(content) {
			return false
		}
	}
	return true
}
