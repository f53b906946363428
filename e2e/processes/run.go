package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// longestPause is the longest time between two starts of a container that ends
// again and again.
const longestPause = 3 * time.Second

// run is one pod that runs.
type run struct {
	pod     *corev1.Pod
	ip, dir string
	folders map[string]string // by volume of the pod
	changed func()

	mu         sync.Mutex // guards what follows
	containers []*container
	ending     bool
	done       sync.WaitGroup
}

// container is one container of a pod.
type container struct {
	spec     corev1.Container
	argv     []string
	env      []string
	command  *exec.Cmd
	status   corev1.ContainerStatus
	finished chan struct{} // of the process that runs
}

// add starts a container.
func (r *run) add(spec corev1.Container, program string) error {
	c := &container{spec: spec}
	c.argv, c.env = r.command(spec, program)
	if len(c.argv) == 0 {
		return errors.New("it has no command")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = append(r.containers, c)
	return r.start(c)
}

// start starts the process of a container, for who holds the lock.
func (r *run) start(c *container) error {
	log, err := os.OpenFile(filepath.Join(r.dir, c.spec.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	c.command = exec.Command(c.argv[0], c.argv[1:]...)
	c.command.Dir, c.command.Env = r.dir, append(os.Environ(), c.env...)
	c.command.Stdout, c.command.Stderr = log, log
	// Of its own group, so that all of it ends, also with this process.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: userOf(r.pod)}
	if err := c.command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", c.argv[0], err)
	}
	c.status = corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Ready: true, Started: ptr.To(true),
		RestartCount: c.status.RestartCount, LastTerminationState: c.status.State,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}
	c.finished = make(chan struct{})
	command, finished := c.command, c.finished
	r.done.Go(func() { r.follow(c, command, finished) })
	return nil
}

// follow waits until a process ends, and starts it again where the pod says so.
func (r *run) follow(c *container, command *exec.Cmd, finished chan struct{}) {
	_ = command.Wait()
	code := int32(command.ProcessState.ExitCode())
	close(finished)
	r.mu.Lock()
	c.status.Ready, c.status.Started = false, ptr.To(false)
	c.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: map[bool]string{true: "Completed", false: "Error"}[code == 0], FinishedAt: metav1.Now(),
	}}
	policy := r.pod.Spec.RestartPolicy
	again := !r.ending && (policy == "" || policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0)
	pause := min(100*time.Millisecond<<min(c.status.RestartCount, 10), longestPause)
	r.mu.Unlock()
	r.changed()
	if !again {
		return
	}
	time.Sleep(pause)
	r.mu.Lock()
	defer r.changed()
	defer r.mu.Unlock()
	if r.ending {
		return
	}
	c.status.RestartCount++
	if err := r.start(c); err != nil {
		c.status.State.Terminated.Message = err.Error()
	}
}

// signal sends a signal to all that runs of a pod, for who holds the lock.
func (r *run) signal(signal syscall.Signal) {
	for _, c := range r.containers {
		if c.command != nil && c.command.Process != nil {
			_ = syscall.Kill(-c.command.Process.Pid, signal)
		}
	}
}

func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal(syscall.SIGKILL)
}

// end ends all of a pod, at once if it does not do so by itself within its grace
// period or a few seconds.
func (r *run) end() {
	r.mu.Lock()
	r.ending = true
	r.signal(syscall.SIGTERM)
	grace := min(time.Duration(ptr.Deref(r.pod.Spec.TerminationGracePeriodSeconds, 30))*time.Second, longestPause)
	var ends []chan struct{}
	for _, c := range r.containers {
		if c.finished != nil {
			ends = append(ends, c.finished)
		}
	}
	r.mu.Unlock()
	late, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	for _, ended := range ends {
		select {
		case <-ended:
		case <-late.Done():
		}
	}
	r.kill() // also what a process has left behind
	r.done.Wait()
}

func (r *run) status() corev1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := metav1.Now()
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, HostIP: "127.0.0.1", HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP: r.ip, PodIPs: []corev1.PodIP{{IP: r.ip}, {IP: nowhere(r.ip)}},
	}
	ready, ended, failed := corev1.ConditionTrue, true, false
	for _, c := range r.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status)
		terminated := c.status.State.Terminated
		if !c.status.Ready {
			ready = corev1.ConditionFalse
		}
		ended = ended && terminated != nil
		failed = failed || terminated != nil && terminated.ExitCode != 0
	}
	if ended && r.pod.Spec.RestartPolicy == corev1.RestartPolicyNever || ended && !failed &&
		r.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		status.Phase = map[bool]corev1.PodPhase{true: corev1.PodFailed, false: corev1.PodSucceeded}[failed]
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			condition.Status = ready
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

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
