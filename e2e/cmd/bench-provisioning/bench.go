package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const namespace = "bench"

// route is a class and the node that its claims are sent to. No scheduler takes
// part: each claim is created with its selected node, so that the time measured
// is that of provisioning and binding alone.
type route struct {
	name, class, node string
}

var (
	yardstick = route{"real class alone", fabric.HomeWait, "home-1"}
	local     = route{"local", fabric.Class, "home-1"}
	remote    = route{"remote, Immediate", "lodestone-now", fabric.WestNode}
)

type bench struct {
	bed    *fabric.Fabric
	client kubernetes.Interface
	bound  *binding
	next   int
	// shared says that there are volumes of others too, which stay.
	shared bool
}

func newBench(ctx context.Context, bed *fabric.Fabric) (*bench, error) {
	if err := bed.Open(ctx, namespace); err != nil {
		return nil, err
	}
	client := bed.Home.Client()
	_, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: remote.class},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.RemoteClass: fabric.WestNow},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make virtual class: %w", err)
	}
	bound, err := watchBinding(ctx, client)
	if err != nil {
		return nil, err
	}
	return &bench{bed: bed, client: client, bound: bound}, nil
}

// hold creates n claims of a route at once and waits until they are bound. It
// returns how long each took from its create request to Bound, and how long all
// took.
func (b *bench) hold(ctx context.Context, r route, n int) ([]time.Duration, time.Duration, error) {
	names := make([]string, n)
	for i := range names {
		b.next++
		names[i] = fmt.Sprintf("claim-%d", b.next)
	}
	began := time.Now()
	failed := make(chan error, n)
	for _, name := range names {
		go func() {
			claim := fabric.NewClaim(namespace, name, r.class)
			claim.Annotations = map[string]string{keys.SelectedNode: r.node}
			b.bound.begin(name)
			_, err := b.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
			failed <- err
		}()
	}
	for range names {
		if err := <-failed; err != nil {
			return nil, 0, fmt.Errorf("create claim: %w", err)
		}
	}
	took, err := b.bound.await(ctx, names)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", r.name, err)
	}
	return took, time.Since(began), nil
}

// burst is hold, with nothing left afterwards.
func (b *bench) burst(ctx context.Context, r route, n int) ([]time.Duration, time.Duration, error) {
	took, all, err := b.hold(ctx, r, n)
	if err != nil {
		return nil, 0, err
	}
	return took, all, b.clear(ctx)
}

// clear deletes all claims and waits until nothing is left of them, so that one
// measurement does not burden the next.
func (b *bench) clear(ctx context.Context) error {
	if err := b.client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete claims: %w", err)
	}
	// The virtual volumes go last; their deletion must not count as writes of what is measured next.
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		if !b.shared && len(b.bed.HomeStorage.Volumes())+len(b.bed.WestStorage.Volumes()) > 0 {
			return false, nil
		}
		left, err := b.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list volumes: %w", err)
		}
		return !slices.ContainsFunc(left.Items, func(volume corev1.PersistentVolume) bool {
			return !b.shared || volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == namespace
		}), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the volumes are gone: %w", err)
	}
	return nil
}

// singles measures one claim at a time, the routes in turn.
func (b *bench) singles(ctx context.Context, n int) ([]measure.Result, error) {
	routes := []route{yardstick, local, remote}
	took := make([][]time.Duration, len(routes))
	for round := range n + 1 {
		for i, r := range routes {
			one, _, err := b.burst(ctx, r, 1)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first only warms up
				took[i] = append(took[i], one...)
			}
		}
	}
	for i, r := range routes {
		say("one claim, %s: median %v of %d", r.name, measure.Median(took[i]).Round(100*time.Microsecond), n)
	}
	return []measure.Result{
		measure.Figure("one claim, real class alone", milliseconds(measure.Median(took[0])), "ms"),
		measure.AtMost("one claim, local route", measure.MedianRatio(took[1], took[0]), 1.5, "x real class alone"),
		measure.AtMost("one claim, remote route, Immediate class", measure.MedianRatio(took[2], took[0]), 4, "x real class alone"),
	}, nil
}

// bursts measures many claims at once.
func (b *bench) bursts(ctx context.Context, n, rounds int) ([]measure.Result, error) {
	var alone, ours []time.Duration
	var spread []float64
	for round := range rounds {
		_, real, err := b.burst(ctx, yardstick, n)
		if err != nil {
			return nil, err
		}
		each, virtual, err := b.burst(ctx, local, n)
		if err != nil {
			return nil, err
		}
		alone, ours = append(alone, real), append(ours, virtual)
		slowest := time.Duration(0)
		for _, one := range each {
			slowest = max(slowest, one)
		}
		spread = append(spread, float64(slowest)/float64(measure.Median(each)))
		say("%d claims at once, round %d of %d: real class alone %v, virtual class %v", n, round+1, rounds, real.Round(10*time.Millisecond),
			virtual.Round(10*time.Millisecond))
	}
	worst := 0.0
	for _, s := range spread {
		worst = max(worst, s)
	}
	return []measure.Result{
		measure.Figure(fmt.Sprintf("%d claims at once, real class alone", n), measure.Median(alone).Seconds(), "s"),
		measure.AtMost(fmt.Sprintf("%d claims at once, local route", n), measure.MedianRatio(ours, alone), budget(n), "x real class alone"),
		measure.AtMost(fmt.Sprintf("%d claims at once, slowest claim", n), worst, 2, "x median claim"),
	}, nil
}

// budget is what a burst may cost; larger ones are allowed a little more.
func budget(n int) float64 {
	if n > 1000 {
		return 2.3
	}
	return 1.6
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// patience is how long a burst may take.
const patience = 20 * time.Minute

// binding tells when claims were bound, by watching them.
type binding struct {
	mu     sync.Mutex
	began  map[string]time.Time
	took   map[string]time.Duration
	change chan struct{}
}

func watchBinding(ctx context.Context, client kubernetes.Interface) (*binding, error) {
	b := &binding{began: map[string]time.Time{}, took: map[string]time.Duration{}, change: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().PersistentVolumeClaims().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Status.Phase == corev1.ClaimBound {
			b.bound(claim.Name)
		}
	}}); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch claims: stopped")
	}
	return b, nil
}

func (b *binding) begin(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began[name] = time.Now()
}

func (b *binding) bound(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began, ok := b.began[name]
	if _, done := b.took[name]; !ok || done {
		return
	}
	b.took[name] = time.Since(began)
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// await waits until all claims of the given names are bound and returns how long
// each took.
func (b *binding) await(ctx context.Context, names []string) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if took := b.all(names); took != nil {
			return took, nil
		}
		select {
		case <-b.change:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until %d claims are bound: %w", len(names), context.Cause(ctx))
		}
	}
}

func (b *binding) all(names []string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	took := make([]time.Duration, 0, len(names))
	for _, name := range names {
		one, ok := b.took[name]
		if !ok {
			return nil
		}
		took = append(took, one)
	}
	return took
}

// sample is how many claims the writes are counted over; settle is how long
// after the last is bound the writes that nobody waits for are counted too.
const (
	sample = 10
	settle = 2 * time.Second
)

// writes counts what Lodestone writes for one claim from its creation until it
// is bound, and what kube-controller-manager writes at home, as the audit logs of both API
// servers show it.
func (b *bench) writes(ctx context.Context) ([]measure.Result, error) {
	var results []measure.Result
	for _, r := range []route{yardstick, local, remote} {
		before, err := b.count()
		if err != nil {
			return nil, err
		}
		if _, _, err := b.hold(ctx, r, sample); err != nil {
			return nil, err
		}
		time.Sleep(settle)
		after, err := b.count()
		if err != nil {
			return nil, err
		}
		if err := b.clear(ctx); err != nil {
			return nil, err
		}
		total, events, binder := 0, 0, 0
		for _, what := range slices.Sorted(maps.Keys(after)) {
			n := after[what] - before[what]
			if n == 0 {
				continue
			}
			say("writes, %s: %s %.1f a claim", r.name, what, float64(n)/sample)
			switch {
			case strings.HasPrefix(what, byBinder):
				binder += n
			case strings.HasSuffix(what, " events"):
				events += n
			default:
				total += n
			}
		}
		results = append(results, measure.Figure(fmt.Sprintf("kube-controller-manager's writes at home for one claim, %s, with events", r.name),
			float64(binder)/sample, "writes"))
		if r == yardstick {
			continue
		}
		results = append(results,
			measure.Figure(fmt.Sprintf("API writes for one claim, %s route", r.name), float64(total)/sample, "writes"),
			measure.Figure(fmt.Sprintf("API writes for one claim, %s route, events", r.name), float64(events)/sample, "writes"))
	}
	return results, nil
}

// byBinder begins what kube-controller-manager writes.
const byBinder = "kube-controller-manager: "

// count returns how often each kind of write was made with Lodestone's rights, and by
// kube-controller-manager at home.
func (b *bench) count() (map[string]int, error) {
	counts := map[string]int{}
	for _, cluster := range []string{b.bed.Home.Name(), b.bed.West.Name()} {
		writes, err := b.bed.Writes(cluster)
		if err != nil {
			return nil, err
		}
		for what, n := range writes {
			counts[cluster+": "+what] += n
		}
	}
	writes, err := b.bed.BinderWrites(b.bed.Home.Name())
	for what, n := range writes {
		counts[byBinder+what] = n
	}
	return counts, err
}
