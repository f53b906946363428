// Package pods runs the pods of virtual nodes in their remote clusters: for each session it
// observes one home pod at a time, lets decide.Next choose the next step, and takes that step
// (act.go). Read pods.go first. Pods are identified by UID. Each change on either side queues the
// pod again, so nothing is polled. What programs there say of a pod or a claim becomes an event
// at home (events.go, claimevents.go, watchevents.go).
//
// Each session has its own queue and workers: a cluster that does not answer delays only its own
// pods. What is remembered between steps (state.go) only saves requests and events; the decisions
// are correct without it.
package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// DefaultWorkers is how many pods of one session are worked on at once.
const DefaultWorkers = 16

// Names of the indexes on home pods.
const (
	byNode = "lodestone/pods/node"
	byUID  = "lodestone/pods/uid"
)

// Config is what a Controller needs.
type Config struct {
	// Home is the client of the home cluster. The informers are of that cluster, have whole
	// objects, and may not run yet.
	Home                    kubernetes.Interface
	Pods, Nodes, Namespaces cache.SharedIndexInformer
	Recorder                record.EventRecorder
	Metrics                 prometheus.Registerer
	// Workers is how many pods of one session are worked on at once; 0 means
	// DefaultWorkers.
	Workers int
}

// Controller runs the pods of virtual nodes. It is safe for concurrent use.
type Controller struct {
	config Config
	steps  *prometheus.CounterVec
	// told counts the events that came from remote clusters.
	told *prometheus.CounterVec
}

// New returns a Controller. It adds indexes to the informer on pods, so that must
// not have started yet.
func New(config Config) (*Controller, error) {
	if config.Workers == 0 {
		config.Workers = DefaultWorkers
	}
	err := config.Pods.AddIndexers(cache.Indexers{
		byNode: func(obj any) ([]string, error) {
			if pod, ok := controller.Object[*corev1.Pod](obj); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}, nil
			}
			return nil, nil
		},
		byUID: func(obj any) ([]string, error) {
			if pod, ok := obj.(metav1.ObjectMetaAccessor); ok {
				return []string{string(pod.GetObjectMeta().GetUID())}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	factory := promauto.With(config.Metrics)
	return &Controller{config: config, steps: factory.NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_virtualnode_pod_steps_total",
		Help: "Steps taken for pods of virtual nodes, by cluster, step and result (success or error).",
	}, []string{"cluster", "step", "result"}), told: newEventCounts(factory)}, nil
}

func (c *Controller) homePod(uid types.UID) *corev1.Pod {
	found := controller.Indexed[corev1.Pod](c.config.Pods, byUID, string(uid))
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

const (
	// requestTimeout limits one request, in either cluster.
	requestTimeout = 10 * time.Second
	// minBackoff and maxBackoff are the shortest and the longest pause before a step is tried
	// again.
	minBackoff, maxBackoff = 20 * time.Millisecond, 10 * time.Second
	// lookAgain is when a pod is reconciled again whose next event should have come by then.
	lookAgain = 5 * time.Second
	// claimsAgain is when it is looked again whether a claim can be used in the remote cluster.
	claimsAgain = 10 * time.Second
	// resync is how often all pods of a session are reconciled without an event.
	resync = 10 * time.Minute
)

// key identifies a pod: uid is that of the home pod, the rest is its namespace and name in the
// remote cluster.
type key struct {
	uid             types.UID
	namespace, name string
}

func (k key) String() string { return k.namespace + "/" + k.name }

// runner works for one session.
type runner struct {
	*Controller
	session    *session.Session
	queue      *controller.Queue[key]
	namespaces *remoteNamespaces
	states     *states
	events     *remoteEvents
	claims     remoteClaims

	mu         sync.Mutex
	clusterUID types.UID
}

// Run works for a session until ctx ends, and returns when every step that was begun is done. The
// informers of the home cluster must be running.
func (c *Controller) Run(ctx context.Context, s *session.Session) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", s.Cluster))
	r := &runner{Controller: c, session: s, queue: newQueue(), namespaces: newRemoteNamespaces(s), states: newStates(),
		events: newRemoteEvents(), claims: newRemoteClaims()}
	defer r.queue.ShutDown()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	unwatch, err := r.watchHome()
	if err != nil {
		return err
	}
	defer unwatch()
	if !cache.WaitForCacheSync(ctx.Done(), c.config.Pods.HasSynced, c.config.Nodes.HasSynced, c.config.Namespaces.HasSynced) {
		return nil
	}
	r.namespaces.open(watching, namespaceEvents{
		shadow: r.shadowChanged, pod: r.remotePodChanged, given: r.remoteNamespaceChanged, synced: r.remoteNamespaceChanged,
		event: r.remoteEvent,
	})
	var running sync.WaitGroup
	running.Go(func() { r.namespaces.run(watching) })
	running.Go(func() { r.identify(watching) })
	running.Go(func() { r.awaitNamespaces(watching) })
	running.Go(func() { r.resyncAll(watching) })
	running.Go(func() { r.events.queue.Run(watching, eventWorkers, r.recordEvent) })
	r.queue.Run(ctx, c.config.Workers, r.sync)
	running.Wait()
	return nil
}

func newQueue() *controller.Queue[key] {
	// A step is finished: the next run would have to clean up half of one.
	return controller.NewQueue[key](controller.QueueConfig{Name: "pods", FirstRetry: minBackoff, LastRetry: maxBackoff, FinishSteps: true,
		Quiet: true})
}

// identify reads the UID of this cluster, which is recorded on a home pod before anything runs for
// it.
func (r *runner) identify(ctx context.Context) {
	logger := klog.FromContext(ctx)
	err := newRetry(&r.namespaces.retries).always(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		system, err := r.session.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get namespace kube-system: %w", err)
		}
		if system.UID == "" {
			return errors.New("the answer has no namespace kube-system: something else than an API server gave it")
		}
		r.mu.Lock()
		r.clusterUID = system.UID
		r.mu.Unlock()
		return nil
	})
	if err != nil {
		return
	}
	logger.V(2).Info("Cluster answers", "clusterUID", r.cluster())
	r.enqueueAll(everywhere)
}

// awaitNamespaces queues all pods once it is known which namespaces are given: a pod that was
// reconciled earlier waits for that.
func (r *runner) awaitNamespaces(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), r.namespaces.requests.HasSynced) {
		r.enqueueAll(everywhere)
	}
}

func (r *runner) cluster() types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusterUID
}

func (r *runner) resyncAll(ctx context.Context) {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.enqueueAll(everywhere)
			r.namespaces.each(r.shadowChanged)
		}
	}
}

// sync takes the next step for a pod.
func (r *runner) sync(ctx context.Context, k key) (time.Duration, error) {
	o, unseen := r.observe(ctx, k)
	result := r.perform(ctx, k, o, decide.Next(o))
	switch {
	case result.err != nil:
		return 0, result.err
	case result.again:
		r.queue.Add(k)
		return 0, nil
	case unseen && result.after == 0:
		return lookAgain, nil
	}
	return result.after, nil
}

// outcome is the result of a step.
type outcome struct {
	err error
	// again is set if the pod is to be reconciled again at once.
	again bool
	after time.Duration
}

// observe gathers what is known of one home pod, from caches alone. unseen says that this program
// wrote or read the ShadowPod but the informer does not show it: if it is deleted already, no event
// will come.
func (r *runner) observe(ctx context.Context, k key) (o decide.Observation, unseen bool) {
	o = decide.Observation{
		Cluster: r.session.Cluster, ClusterUID: r.cluster(), Network: r.session.Network,
		Ranges: r.session.Ranges, Translations: r.session.Translations, Problem: r.states.problem(k),
	}
	var home types.UID
	if pod := r.homePod(k.uid); pod != nil && pod.Spec.NodeName == r.session.Node && r.keyOf(pod) == k {
		o.Pod = r.states.home(k, pod)
		namespace := controller.Get[corev1.Namespace](r.config.Namespaces, pod.Namespace)
		if namespace != nil {
			home = namespace.UID
		}
		o.Open = remotecluster.MayUse(namespace, r.session.Cluster)
		o.StaysHome = r.states.staysHome(k)
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && o.StaysHome != "" {
			o.Replace = r.states.mayReplace(owner.UID, time.Now())
		}
		o.Template = translate.Template(o.Pod, r.session.Namespace, r.session.HomeServer)
		if _, started := decide.CopyOf(o.Pod); started {
			// This is done even if the namespace was taken back: the copy must be ended.
			r.namespaces.watch(k.namespace, false)
		}
	}
	if node := controller.Get[corev1.Node](r.config.Nodes, r.session.Node); node != nil {
		o.HostIP, o.Current = address(node), ready(node)
		o.Silent = !o.Current
	}
	o.Namespace = r.namespaces.of(k.namespace, home)
	shadow, remote := r.namespaces.find(k)
	if shadow != nil && !r.isOf(shadow, k.uid) {
		o.Blocking, shadow = shadow, nil
	}
	o.Shadow = r.states.shadow(k, shadow)
	if o.Pod != nil && o.Shadow != nil {
		translate.KeepClaims(&o.Template, o.Shadow.Spec.Pod)
	}
	unseen = shadow == nil && o.Shadow != nil
	if remote != nil && remote.Labels[keys.PodUID] == string(k.uid) {
		o.Remote = remote
	}
	if o.ClusterUID == "" {
		o.Namespace.Given, o.Namespace.Message = false, fmt.Sprintf("waiting until cluster %s answers", r.session.Cluster)
	}
	if o.Pod == nil && o.Shadow == nil {
		r.states.forget(k)
	}
	klog.FromContext(ctx).V(6).Info("Observed", "podUID", k.uid, "pod", o.Pod != nil, "shadow", o.Shadow != nil, "remote", o.Remote != nil)
	return o, unseen
}

// isOf reports whether a ShadowPod belongs to a home pod of this home.
func (r *runner) isOf(shadow *shadowPod, uid types.UID) bool {
	return shadow.Spec.Home.Cluster == r.session.HomeID && shadow.Spec.Home.UID == uid
}

// perform takes a step and records its message as an event.
func (r *runner) perform(ctx context.Context, k key, o decide.Observation, step decide.Step) outcome {
	logger := klog.FromContext(ctx).WithValues("podUID", k.uid)
	if o.Pod != nil {
		logger = logger.WithValues("pod", klog.KObj(o.Pod))
	}
	ctx = klog.NewContext(ctx, logger)
	r.tell(k, o.Pod, step.Tell)
	if step.Verb == decide.Idle {
		return outcome{}
	}
	logger.V(3).Info("Taking step", "step", step.Verb)
	result := r.act(ctx, k, o, step)
	name := "success"
	if result.err != nil {
		name = "error"
		r.stepFailed(k, o, step, result.err)
	} else {
		r.states.setProblem(k, "")
	}
	r.steps.WithLabelValues(r.session.Cluster, string(step.Verb), name).Inc()
	return result
}

// stepFailed remembers why a step failed, and records an event if it keeps failing. Errors that
// pass by themselves, such as conflicts, are not recorded.
func (r *runner) stepFailed(k key, o decide.Observation, step decide.Step, err error) {
	if passing(err) {
		return
	}
	text := sentence.Cut(err.Error(), maxEvent/2) + "; it is tried again"
	r.states.setProblem(k, text)
	if r.queue.Failures(k) < 3 {
		return
	}
	if o.Pod != nil && (step.Verb == decide.Finish || step.Verb == decide.End) {
		text += "; until then the pod stays, for it may still run there: once it is certain that it does not, `kubectl lodestone release " +
			"pod` gives it up"
	}
	r.tell(k, o.Pod, &decide.Message{Warning: true, Reason: string(step.Verb) + "Failed", Text: text})
}

// maxEvent limits the text of an event, in bytes: API servers refuse longer ones, and parts of it
// come from a remote cluster.
const maxEvent = 1024

// tell records an event on the home pod, unless the same one was recorded a short time ago.
func (r *runner) tell(k key, pod *corev1.Pod, m *decide.Message) {
	if m == nil || pod == nil {
		return
	}
	text := sentence.Cut(m.Text, maxEvent)
	if !r.states.newEvent(k, m.Reason+" "+text, time.Now()) {
		return
	}
	kind := corev1.EventTypeNormal
	if m.Warning {
		kind = corev1.EventTypeWarning
	}
	r.config.Recorder.Event(pod, kind, m.Reason, text)
}

func encode(patch map[string]any) ([]byte, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return data, nil
}

func (r *runner) keyOf(pod metav1.Object) key {
	return key{uid: pod.GetUID(), namespace: r.session.Namespace(pod.GetNamespace()), name: pod.GetName()}
}

// watchHome adds handlers to the informers of the home cluster that queue pods. The returned
// function removes them.
func (r *runner) watchHome() (func(), error) {
	unwatchPods, err1 := controller.WatchMentioning(r.config.Pods, r.session.Node, r.homePodChanged)
	unwatchNodes, err2 := controller.Watch(r.config.Nodes, r.nodeChanged)
	unwatchNamespaces, err3 := controller.Watch(r.config.Namespaces, r.namespaceChanged)
	unwatch := func() {
		for _, one := range []func() error{unwatchPods, unwatchNodes, unwatchNamespaces} {
			if one != nil {
				_ = one()
			}
		}
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		unwatch()
		return nil, fmt.Errorf("watch the home cluster: %w", err)
	}
	return unwatch, nil
}

func (r *runner) homePodChanged(was, now *corev1.Pod) {
	if now == nil {
		r.states.homeDeleted(r.keyOf(was))
	}
	r.enqueue(controller.Either(was, now))
}

func (r *runner) enqueue(pod *corev1.Pod) {
	if pod.Spec.NodeName == r.session.Node {
		r.queue.Add(r.keyOf(pod))
	}
}

// nodeChanged queues all pods of the virtual node when it becomes ready: while it is not, changes
// in the remote cluster have no effect.
func (r *runner) nodeChanged(was, now *corev1.Node) {
	if now == nil || now.Name != r.session.Node {
		return
	}
	if was != nil && ready(was) == ready(now) && address(was) == address(now) {
		return
	}
	if ready(now) {
		r.namespaces.retries.retryNow()
	}
	r.enqueueAll(everywhere)
}

func (r *runner) namespaceChanged(was, now *corev1.Namespace) {
	if now == nil {
		return
	}
	if was != nil && maps.Equal(was.Labels, now.Labels) && equality.Semantic.DeepEqual(was.Annotations, now.Annotations) {
		return
	}
	r.enqueueAll(func(home string) bool { return home == now.Name })
}

// shadowChanged queues the home pod of a ShadowPod, and the one that may wait for its name.
func (r *runner) shadowChanged(shadow *shadowPod, gone bool) {
	home := shadow.Spec.Home
	if home.Cluster != r.session.HomeID {
		return
	}
	k := key{uid: home.UID, namespace: shadow.Namespace, name: shadow.Name}
	if gone {
		r.states.shadowDeleted(k, shadow.UID)
		if pod := controller.Get[corev1.Pod](r.config.Pods, home.Namespace+"/"+home.Name); pod != nil {
			r.enqueue(pod)
		}
	}
	r.queue.Add(k)
}

func (r *runner) remotePodChanged(pod *corev1.Pod) {
	r.queue.Add(key{uid: types.UID(pod.Labels[keys.PodUID]), namespace: pod.Namespace, name: pod.Name})
}

// remoteNamespaceChanged queues the pods that belong in a namespace of the remote cluster.
func (r *runner) remoteNamespaceChanged(namespace string) {
	r.enqueueAll(func(home string) bool { return r.session.Namespace(home) == namespace })
}

// enqueueAll queues the pods of the virtual node that are in one of the home namespaces.
func (r *runner) enqueueAll(which func(namespace string) bool) {
	for pod := range controller.Identities(r.config.Pods, byNode, r.session.Node) {
		if which(pod.GetNamespace()) {
			r.queue.Add(r.keyOf(pod))
		}
	}
}

// everywhere is which of enqueueAll for the pods of all namespaces.
func everywhere(string) bool { return true }

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// address returns the internal address of a node, empty if it has none.
func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
