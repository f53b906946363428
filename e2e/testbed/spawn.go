package testbed

import (
	"os/exec"
	"runtime"
	"sync"
)

var spawner struct {
	once     sync.Once
	requests chan func()
}

// spawn starts cmd from one thread that lives as long as this process. The signal
// that children get at their parent's death is tied to the thread that forked them,
// and Go ends threads at will.
func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() {
		spawner.requests = make(chan func())
		go func() {
			runtime.LockOSThread()
			for request := range spawner.requests {
				request()
			}
		}()
	})
	result := make(chan error)
	spawner.requests <- func() { result <- cmd.Start() }
	return <-result
}
