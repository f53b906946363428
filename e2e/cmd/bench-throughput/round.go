package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// setting is one way to place pods.
type setting struct {
	name string
	// extender is the prefix of the verbs of kube-scheduler's extender; empty: none.
	extender string
	// marked: the scheduler asks the extender only about pods with the marker.
	marked bool
	// class is the class of the claims; empty: pods without claims.
	class string
	// frozen: all pods are created before the scheduler may place the first.
	frozen bool
	// bound: the claims have their volumes before the pods that are measured are
	// created.
	bound bool
}

// requests is how many API requests a second the scheduler may make. By default it
// makes 50, and that alone would decide how long pods take.
const requests = 5000

// configuration returns the scheduler's, with the extender as deploy/examples have it.
func (s setting) configuration() ([]byte, error) {
	configuration := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": requests, "burst": requests},
	}
	if s.extender == "" {
		return yaml.Marshal(configuration)
	}
	extender := map[string]any{
		"urlPrefix": s.extender, "filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt",
		"weight": 3, "nodeCacheCapable": true, "ignorable": true, "httpTimeout": "2s",
	}
	if s.marked {
		extender["managedResources"] = []any{map[string]any{"name": keys.MarkerResource, "ignoredByScheduler": true}}
	}
	configuration["extenders"] = []any{extender}
	return yaml.Marshal(configuration)
}

// creators is how many pods are created at once.
const creators = 16

// warmUp is how many pods are placed before a round, so that the scheduler has its
// view of the cluster and its connections.
const warmUp = 10

// outcome is what it takes to place the pods of a round.
type outcome struct {
	took time.Duration
	used usage
}

// round measures the time from the creation of n pods until a new kube-scheduler has
// placed them all.
func (b *bed) round(ctx context.Context, s setting, n int) (outcome, error) {
	configuration, err := s.configuration()
	if err != nil {
		return outcome{}, fmt.Errorf("encode the scheduler's configuration: %w", err)
	}
	if err := b.cluster.ReconfigureScheduler(ctx, configuration); err != nil {
		return outcome{}, err
	}
	b.rounds++
	if err := b.prepare(ctx, s, n); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	before := usageNow()
	began, err := b.begin(ctx, s, n)
	if err != nil {
		return outcome{}, err
	}
	ended, err := b.placed.await(ctx, warmUp+n)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.name, err)
	}
	used := usageNow().since(before)
	return outcome{took: ended.Sub(began), used: used}, b.clear(ctx)
}

// prepare has the first pods of a round placed and, where the claims of the others
// are to be bound, has them used once by pods that then end.
func (b *bed) prepare(ctx context.Context, s setting, n int) error {
	once := s
	once.bound = false
	if s.bound {
		if err := b.create(ctx, once, "pod", n); err != nil {
			return err
		}
		if _, err := b.placed.await(ctx, n); err != nil {
			return err
		}
		if err := b.endPods(ctx); err != nil {
			return err
		}
	}
	if err := b.create(ctx, once, "warm", warmUp); err != nil {
		return err
	}
	_, err := b.placed.await(ctx, warmUp)
	return err
}

// begin creates the pods of a round and returns since when the scheduler could place
// them.
func (b *bed) begin(ctx context.Context, s setting, n int) (time.Time, error) {
	if !s.frozen {
		began := time.Now()
		return began, b.create(ctx, s, "pod", n)
	}
	if err := b.cluster.PauseScheduler(); err != nil {
		return time.Time{}, err
	}
	if err := b.create(ctx, s, "pod", n); err != nil {
		return time.Time{}, err
	}
	return time.Now(), b.cluster.ResumeScheduler()
}

// create creates pods, each after its claim if it has one.
func (b *bed) create(ctx context.Context, s setting, prefix string, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			name := fmt.Sprintf("%s-%d-%d", prefix, b.rounds, i)
			if s.class != "" && !s.bound {
				claim := fabric.NewClaim(namespace, name, s.class)
				if _, err := b.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("create claim: %w", err)
				}
			}
			if _, err := b.client.CoreV1().Pods(namespace).Create(ctx, newPod(name, s.class), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// clear deletes all pods and claims and waits until nothing is left of them, so that
// one round does not burden the next.
func (b *bed) clear(ctx context.Context) error {
	if err := b.endPods(ctx); err != nil {
		return err
	}
	if err := b.client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete claims: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return len(b.storage.Volumes()) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the volumes are gone: %w", err)
	}
	return nil
}

// endPods deletes all pods and waits until they are gone.
func (b *bed) endPods(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if _, err := b.placed.await(ctx, 0); err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	return nil
}

// patience is how long the pods of a round may take.
const patience = 3 * time.Minute

// placement counts the pods that are bound to a node. It is told of no others, so
// that counting costs little.
type placement struct {
	mu     sync.Mutex
	bound  int
	last   time.Time
	change chan struct{}
}

func watchPlacement(ctx context.Context, client kubernetes.Interface) (*placement, error) {
	p := &placement{change: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.count(1) },
		DeleteFunc: func(any) { p.count(-1) },
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch pods: stopped")
	}
	return p, nil
}

func (p *placement) count(n int) {
	p.mu.Lock()
	p.bound += n
	p.last = time.Now()
	p.mu.Unlock()
	select {
	case p.change <- struct{}{}:
	default:
	}
}

// await waits until so many pods are bound and returns when the last of them was.
func (p *placement) await(ctx context.Context, pods int) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	for {
		p.mu.Lock()
		bound, last := p.bound, p.last
		p.mu.Unlock()
		if bound == pods {
			return last, nil
		}
		select {
		case <-p.change:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait until %d pods are bound, %d are: %w", pods, bound, context.Cause(ctx))
		}
	}
}

// newPod returns a pod of ordinary size that mounts a claim of its own name, unless
// class is empty.
func newPod(name, class string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": "server", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6c8d9f7b5"},
		},
	}
	container := corev1.Container{Name: "server", Image: "registry.example.com/team/server:1.2.3"}
	for i := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of ordinary length"})
	}
	pod.Spec.Containers = []corev1.Container{container}
	if class != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
	}
	return pod
}

// usage is how much processor time each program has used, by name.
type usage map[string]time.Duration

// usageNow returns the usage of this process, which plays the real storage, and of
// the programs that it has started. It is empty where the system does not tell.
func usageNow() usage {
	used := usage{}
	self := strconv.Itoa(os.Getpid())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		directory := filepath.Dir(path)
		// The name, in parentheses, may hold anything; state and parent follow it.
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		switch {
		case filepath.Base(directory) == self:
			used["benchmark and real storage"] += threadTime(directory)
		case len(fields) > 1 && fields[1] == self:
			used[nameOf(directory)] += threadTime(directory)
		}
	}
	return used
}

// threadTime sums up what the threads of a process have used.
func threadTime(directory string) time.Duration {
	var sum time.Duration
	threads, _ := filepath.Glob(directory + "/task/*/schedstat")
	for _, path := range threads {
		var used time.Duration
		if content, err := os.ReadFile(path); err == nil {
			_, _ = fmt.Sscan(string(content), &used)
		}
		sum += used
	}
	return sum
}

// nameOf returns the name of a program: of the one that a multi-call program was
// started as, where it is one.
func nameOf(directory string) string {
	content, err := os.ReadFile(directory + "/cmdline")
	if err != nil {
		return "ended"
	}
	args := strings.Split(string(content), "\x00")
	if len(args) > 1 && args[1] != "" && !strings.HasPrefix(args[1], "-") {
		return args[1]
	}
	return filepath.Base(args[0])
}

// since returns what was used after an earlier usage.
func (u usage) since(earlier usage) usage {
	used := usage{}
	for name, at := range u {
		used[name] = at - earlier[name]
	}
	return used
}

func (u usage) total() time.Duration {
	var sum time.Duration
	for _, used := range u {
		sum += used
	}
	return sum
}

// perPod lists the programs that used the most for each of n pods.
func (u usage) perPod(n int) string {
	names := slices.SortedFunc(maps.Keys(u), func(a, b string) int { return int(u[b] - u[a]) })
	var parts []string
	for _, name := range names[:min(8, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, float64((u[name]/time.Duration(n)).Microseconds())/1000))
	}
	return strings.Join(parts, ", ") + " ms"
}
