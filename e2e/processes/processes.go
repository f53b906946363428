// Package processes runs pods of a test bed as processes of this machine, for
// tests of programs that work on real files: it takes the place of a container
// runtime without needing one. A pod has its own address on loopback, another one
// that leads nowhere, and its own folders for emptyDirs and Secrets; the paths at
// which its containers mount volumes are replaced in their commands and arguments
// by the folders that stand for those volumes. Nothing is confined: programs and
// commands are those of the tests themselves.
package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Shell is the image of containers that run a command of this machine.
const Shell = "shell"

// Config says what is run, and where.
type Config struct {
	// Client reaches the cluster of the pods, to read Secrets.
	Client kubernetes.Interface
	// Disks are the volumes, which may be shared with another cluster.
	Disks Disks
	// Dir holds the other folders and the logs.
	Dir string
	// Programs are the paths of programs, by image.
	Programs map[string]string
}

// Processes runs the pods of one cluster. It is safe for concurrent use, and
// implements fakekubelet.Runner.
type Processes struct {
	Config

	mu      sync.Mutex // guards what follows
	running map[types.NamespacedName]*run
	single  single
	changed func(pod *corev1.Pod)
}

// New returns Processes that run nothing yet.
func New(config Config) *Processes {
	return &Processes{Config: config, running: map[types.NamespacedName]*run{}, single: single{}, changed: func(*corev1.Pod) {}}
}

// addresses counts the addresses that were given to pods of all clusters. Other programs on
// this machine may run pods too, so each begins to count elsewhere.
var addresses atomic.Uint32

func init() { addresses.Store(rand.Uint32()) }

// Network has the first addresses of all pods; their second ones lead nowhere, as on
// networks that are apart.
const Network = "127.64.0.0/10"

// Nowhere has the second addresses of all pods.
const Nowhere = "100::/64"

// address returns an address on loopback that no other pod has.
func address() string {
	n := addresses.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(80 + n>>16%48), byte(n >> 8), byte(n)}).String()
}

// nowhere returns the second address of the pod that has a first one.
func nowhere(ip string) string {
	discarded := [16]byte{0: 1} // RFC 6666
	four := netip.MustParseAddr(ip).As4()
	copy(discarded[12:], four[:])
	return netip.AddrFrom16(discarded).String()
}

// Notify has look called when a process of a pod has started or ended.
func (p *Processes) Notify(look func(pod *corev1.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = look
}

// Runs reports whether all containers of a pod have images that are known here.
func (p *Processes) Runs(pod *corev1.Pod) bool {
	for _, container := range pod.Spec.Containers {
		if _, ok := p.Programs[container.Image]; !ok && container.Image != Shell {
			return false
		}
	}
	return true
}

// Run starts a pod unless it runs already, and returns its status.
func (p *Processes) Run(ctx context.Context, pod *corev1.Pod, volumes map[string]*corev1.PersistentVolume) (corev1.PodStatus, error) {
	p.mu.Lock()
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	known, changed := p.running[key], p.changed
	p.mu.Unlock()
	if known != nil && known.pod.UID != pod.UID {
		p.End(pod.Namespace, pod.Name)
		known = nil
	}
	if known != nil {
		return known.status(), nil
	}
	if err := p.take(pod.UID, volumes); err != nil {
		return corev1.PodStatus{}, err
	}
	begun := &run{pod: pod, ip: address(), dir: filepath.Join(p.Dir, string(pod.UID)), changed: func() { changed(pod) }}
	if err := p.prepare(ctx, begun, volumes); err != nil {
		p.give(pod.UID)
		return corev1.PodStatus{}, err
	}
	for _, container := range pod.Spec.Containers {
		if err := begun.add(container, p.Programs[container.Image]); err != nil {
			begun.end()
			p.give(pod.UID)
			return corev1.PodStatus{}, fmt.Errorf("start container %s: %w", container.Name, err)
		}
	}
	p.mu.Lock()
	p.running[key] = begun
	p.mu.Unlock()
	return begun.status(), nil
}

// End ends what runs of the pods of a name, and returns when nothing does.
func (p *Processes) End(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	p.mu.Lock()
	known := p.running[key]
	delete(p.running, key)
	p.mu.Unlock()
	if known != nil {
		known.end()
		p.give(known.pod.UID)
	}
}

// EndAll ends all pods.
func (p *Processes) EndAll() {
	p.mu.Lock()
	all := p.running
	p.running = map[types.NamespacedName]*run{}
	p.mu.Unlock()
	for _, known := range all {
		known.end()
		p.give(known.pod.UID)
	}
}

// Kill kills the processes of a pod without a warning, as when memory runs out:
// they are started again as the pod's restart policy says.
func (p *Processes) Kill(namespace, name string) {
	p.mu.Lock()
	known := p.running[types.NamespacedName{Namespace: namespace, Name: name}]
	p.mu.Unlock()
	if known != nil {
		known.kill()
	}
}

// Log returns the path of what a container has written.
func (p *Processes) Log(pod *corev1.Pod, container string) string {
	return filepath.Join(p.Dir, string(pod.UID), container+".log")
}

// everywhere is a flag's address that means all those of the pod.
var everywhere = regexp.MustCompile(`(^|=)(?:0\.0\.0\.0|\[::\])?:(\d+)$`)

// command returns the command line of a container, its paths and addresses
// replaced by those of this machine, and its environment.
func (r *run) command(container corev1.Container, program string) (argv, env []string) {
	values := map[string]string{}
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			value = r.field(variable.ValueFrom.FieldRef.FieldPath)
		}
		values[variable.Name] = r.local(container, value)
		env = append(env, variable.Name+"="+values[variable.Name])
	}
	line := slices.Concat(container.Command, container.Args)
	if program != "" {
		argv = append(argv, program)
		line = container.Args
		if len(container.Command) > 1 {
			line = slices.Concat(container.Command[1:], container.Args)
		}
	}
	for _, arg := range line {
		for name, value := range values {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		argv = append(argv, everywhere.ReplaceAllString(r.local(container, arg), "${1}"+r.ip+":${2}"))
	}
	return argv, env
}

// field returns what the downward API has of a pod.
func (r *run) field(path string) string {
	switch path {
	case "metadata.name":
		return r.pod.Name
	case "metadata.namespace":
		return r.pod.Namespace
	case "metadata.uid":
		return string(r.pod.UID)
	case "spec.nodeName":
		return r.pod.Spec.NodeName
	case "status.podIP", "status.podIPs":
		return r.ip
	}
	return ""
}

// local replaces the paths at which a container has volumes, and devices.
func (r *run) local(container corev1.Container, text string) string {
	mounts := slices.Clone(container.VolumeMounts)
	for _, device := range container.VolumeDevices {
		mounts = append(mounts, corev1.VolumeMount{Name: device.Name, MountPath: device.DevicePath})
	}
	// A mount within another one first.
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	for _, mount := range mounts {
		path := regexp.MustCompile(`(^|[^\w/.-])` + regexp.QuoteMeta(strings.TrimSuffix(mount.MountPath, "/")) + `($|[^\w.-])`)
		text = path.ReplaceAllString(text, "${1}"+filepath.Join(r.folders[mount.Name], mount.SubPath)+"${2}")
	}
	return text
}

// single says which pod has a volume that one pod may use, by driver and handle:
// several PersistentVolumes may lead to it.
type single map[string]types.UID

// take gives a pod the ReadWriteOncePod volumes that it mounts. As a kubelet does, it
// refuses while another pod has one, or has not ended yet.
func (p *Processes) take(pod types.UID, volumes map[string]*corev1.PersistentVolume) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wanted []string
	for _, volume := range volumes {
		if volume.Spec.CSI == nil || !slices.Contains(volume.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		key := volume.Spec.CSI.Driver + "^" + volume.Spec.CSI.VolumeHandle
		if other, taken := p.single[key]; taken && other != pod {
			return fmt.Errorf("volume %s is ReadWriteOncePod and in use by pod %s", volume.Name, other)
		}
		wanted = append(wanted, key)
	}
	for _, key := range wanted {
		p.single[key] = pod
	}
	return nil
}

// give takes back what take gave.
func (p *Processes) give(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, user := range p.single {
		if user == pod {
			delete(p.single, key)
		}
	}
}
