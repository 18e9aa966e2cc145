package redistest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// WithClock gives the server a time of day of its own, which Server.StepClock moves while it runs. It needs a C compiler,
// as the race detector does. The usual library, libfaketime, would deadlock with Redis's allocator.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// StepClock steps the time of day of a server started WithClock to the machine's plus an offset.
func (s *Server) StepClock(offset time.Duration) error {
	if !s.settings.clock {
		return fmt.Errorf("server %s has no clock of its own", s.Addr)
	}
	// the process has mapped the file: written in place, all eight bytes at once
	file, err := os.OpenFile(s.clockFile(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset.Microseconds()))
	if _, err := file.WriteAt(b[:], 0); err != nil {
		_ = file.Close()
		return fmt.Errorf("setting the clock: %w", err)
	}
	return file.Close()
}

func (s *Server) clockFile() string { return filepath.Join(s.Dir, "clock") }

// makeClock compiles the library and returns the variables of the server's environment.
func (s *Server) makeClock() ([]string, error) {
	source, library := filepath.Join(s.Dir, "clock.c"), filepath.Join(s.Dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, fmt.Errorf("writing the clock: %w", err)
	}
	if _, err := os.Stat(s.clockFile()); err != nil { // it survives restarts
		if err := os.WriteFile(s.clockFile(), make([]byte, 8), 0o600); err != nil {
			return nil, fmt.Errorf("writing the clock: %w", err)
		}
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the clock (Debian's packages gcc and libc6-dev): %w\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, "TEST_CLOCK=" + s.clockFile()}, nil
}
