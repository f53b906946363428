package processes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Exec runs a command beside the process of a container, with its folders and environment, and returns its exit code. It ends with the
// container, and not with whoever asked for it.
func (p *Processes) Exec(namespace, pod, container string, command []string, stdout, stderr io.Writer) (code int, err error) {
	p.mu.Lock()
	known := p.running[types.NamespacedName{Namespace: namespace, Name: pod}]
	p.mu.Unlock()
	if known == nil {
		return 0, fmt.Errorf("pod %s/%s does not run", namespace, pod)
	}
	running, err := known.exec(container, command, stdout, stderr)
	if err != nil {
		return 0, err
	}
	err = running.Wait()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		if code = failed.ExitCode(); code < 0 {
			code = 137 // as a shell says of one that was killed
		}
		return code, nil
	}
	return 0, err
}

// exec starts a command in the group of a container's process.
func (r *run) exec(name string, command []string, stdout, stderr io.Writer) (*exec.Cmd, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.spec.Name != name {
			continue
		}
		if c.status.State.Running == nil {
			return nil, fmt.Errorf("container %s does not run", name)
		}
		argv, env := r.command(corev1.Container{Command: command, Env: c.spec.Env, VolumeMounts: c.spec.VolumeMounts,
			VolumeDevices: c.spec.VolumeDevices}, "")
		running := exec.Command(argv[0], argv[1:]...)
		running.Dir, running.Env, running.Stdout, running.Stderr = r.dir, append(os.Environ(), env...), stdout, stderr
		running.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.command.Process.Pid, Credential: userOf(r.pod)}
		if err := running.Start(); err != nil {
			return nil, fmt.Errorf("run %s: %w", argv[0], err)
		}
		return running, nil
	}
	return nil, fmt.Errorf("container not found (%q)", name)
}
