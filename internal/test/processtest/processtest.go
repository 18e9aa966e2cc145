// Package processtest runs programs for tests, in processes that do not outlive the test's.
package processtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// patience is how long End waits, because the machine may be busy.
const patience = time.Minute

// Process is a process that was started. Its methods may be called from several goroutines.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a command. The caller has to kill the process at the end of the test.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = diesWithParent()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's signal is sent when the thread dies that started the process, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // State returns the outcome
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid returns the process's ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// State waits for the end of the process and returns how it ended.
func (p *Process) State() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}

// Signal sends a signal. It is an error if the process has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending signal %q to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}

// End sends a signal and waits until the process has ended. One that does not end is killed, which is an error.
func (p *Process) End(sig os.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of signal %q and was killed", p.cmd.Path, patience, sig)
	}
}

// Kill ends the process at once, if it has not ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Root is the folder of the project.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the project: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "xcaddy.json")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the project: no folder above holds xcaddy.json")
		}
		dir = parent
	}
}
