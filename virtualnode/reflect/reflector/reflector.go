// Package reflector copies to a remote cluster what the pods of its virtual node need there: the
// ConfigMaps and Secrets that they name, home API tokens if they ask for them, and the Services of
// their namespaces. Read reflector.go first: Reflector.Run starts the work for one cluster,
// syncObject handles one object. A change in either cluster queues just that object, and a worker
// compares the wanted copy with the existing one. Only Secrets are polled: home may write them
// there but not read them.
//
// The program may be stopped after any step; the next run continues from what it finds. Copies are
// identified by their labels. Names of Secrets are written to a ledger before the Secret is
// created, because home may not list Secrets.
package reflector

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Reflector needs.
type Config struct {
	// Client reads Secrets, each by its name, and requests tokens.
	Client kubernetes.Interface
	// Factory has the informers of everything else; the caller starts it.
	Factory informers.SharedInformerFactory
	// Remotes are the RemoteClusters of home; the caller runs the informer. nil: none is reached through home.
	Remotes cache.SharedIndexInformer
	// Recorder writes events on pods and Services.
	Recorder record.EventRecorder
	// Metrics is where metrics are registered; it may be nil.
	Metrics prometheus.Registerer
	// Clock is for tests; nil means real time.
	Clock clock.WithTicker
	// Workers is how many objects are worked on at once for each remote cluster;
	// 8 if it is 0.
	Workers int
}

// Reflector runs for any number of remote clusters. It is safe for concurrent use.
type Reflector struct {
	Config
	pods       cache.SharedIndexInformer
	configMaps cache.SharedIndexInformer
	services   cache.SharedIndexInformer
	slices     cache.SharedIndexInformer
	nodes      cache.SharedIndexInformer

	configMapLister corelisters.ConfigMapLister
	serviceLister   corelisters.ServiceLister
	syncs           *prometheus.CounterVec
}

// New returns a Reflector. It must be called once for each Factory, before that
// is started.
func New(config Config) (*Reflector, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Workers == 0 {
		config.Workers = 8
	}
	core := config.Factory.Core().V1()
	r := &Reflector{
		Config: config,
		pods:   core.Pods().Informer(), configMaps: core.ConfigMaps().Informer(), services: core.Services().Informer(),
		slices:          config.Factory.Discovery().V1().EndpointSlices().Informer(),
		nodes:           core.Nodes().Informer(),
		configMapLister: core.ConfigMaps().Lister(), serviceLister: core.Services().Lister(),
		syncs: newSyncs(config.Metrics),
	}
	if err := r.pods.AddIndexers(cache.Indexers{needsIndex: indexNeeds}); err != nil {
		return nil, fmt.Errorf("index pods by what they need: %w", err)
	}
	if err := r.slices.AddIndexers(cache.Indexers{serviceIndex: indexService}); err != nil {
		return nil, fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return r, nil
}

// Run maintains the copies in one remote cluster until ctx ends. The copies then stay: the pods
// that need them continue.
func (r *Reflector) Run(ctx context.Context, s *session.Session) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", s.Cluster))
	if !cache.WaitForCacheSync(ctx.Done(), r.pods.HasSynced, r.configMaps.HasSynced, r.services.HasSynced, r.slices.HasSynced,
		r.nodes.HasSynced) {
		return nil
	}
	c := newClusterReflector(ctx, r, s)
	stop, err := c.subscribe()
	defer stop()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { c.requests.RunWithContext(ctx) })
	c.queue.Run(ctx, r.Workers, c.sync)
	running.Wait()
	return nil
}

// subscribe adds the handlers that queue objects. The returned function removes them.
func (c *clusterReflector) subscribe() (func(), error) {
	unwatchPods, err1 := controller.WatchMentioning(c.pods, c.session.Node, c.podChanged)
	unwatchConfigMaps, err2 := controller.Watch(c.configMaps, func(was, now *corev1.ConfigMap) {
		c.homeConfigMapChanged(controller.Either(was, now))
	})
	unwatchServices, err3 := controller.Watch(c.services, func(was, now *corev1.Service) {
		service := controller.Either(was, now)
		c.queue.Add(key{serviceKind, service.Namespace, service.Name})
	})
	unwatchSlices, err4 := controller.Watch(c.slices, func(was, now *discoveryv1.EndpointSlice) {
		c.homeSliceChanged(was)
		c.homeSliceChanged(now)
	})
	_, err5 := controller.Watch(c.requests, c.requestChanged)
	unwatchRemotes, err6 := c.watchTransit()
	stop := func() {
		for _, unwatch := range []func() error{unwatchPods, unwatchConfigMaps, unwatchServices, unwatchSlices, unwatchRemotes} {
			if unwatch != nil {
				_ = unwatch()
			}
		}
	}
	return stop, errors.Join(err1, err2, err3, err4, err5, err6)
}

const (
	// stepTimeout limits all requests of the work on one object together.
	stepTimeout = 10 * time.Second
	// firstRetry and lastRetry are the shortest and the longest pause after a failed request.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
	// refusedPeriod is the pause after a refusal, which lasts until somebody acts.
	refusedPeriod = 30 * time.Second
)

// kind is the kind of object that a key is about.
type kind string

const (
	namespaceKind kind = "Namespace"
	configMapKind kind = "ConfigMap"
	secretKind    kind = "Secret"
	serviceKind   kind = "Service"
)

// key identifies an object of home that exists or existed. The key of a namespace has no name; that
// of a token has the name of its Secret.
type key struct {
	kind            kind
	namespace, name string
}

// clusterReflector maintains the copies in one remote cluster.
type clusterReflector struct {
	*Reflector
	// ctx is the context of watches, which begin whenever a namespace becomes usable.
	ctx     context.Context
	session *session.Session
	queue   *controller.Queue[key]
	// requests are the NamespaceRequests of this home there.
	requests cache.SharedIndexInformer
	secrets  *secretWatches
	tokens   tokens
	refusals lastRefusals

	mu         sync.Mutex
	namespaces map[string]*remoteNamespace // by home namespace
}

func newClusterReflector(ctx context.Context, r *Reflector, s *session.Session) *clusterReflector {
	c := &clusterReflector{
		Reflector: r, ctx: ctx, session: s,
		queue: controller.NewQueue[key](controller.QueueConfig{
			Name: "reflect-" + s.Cluster, FirstRetry: firstRetry, LastRetry: lastRetry, Timeout: stepTimeout, Quiet: true, Clock: r.Clock,
		}),
		requests:   clients.NewInformer(s.Remote.NamespaceRequests(s.Tenant()), &remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{}),
		namespaces: map[string]*remoteNamespace{},
	}
	c.secrets = newSecretWatches(ctx, r.Client, func(namespace, name string) { c.queue.Add(key{secretKind, namespace, name}) })
	return c
}

func (c *clusterReflector) destination(s *remoteNamespace) copies.Destination {
	return copies.Destination{HomeID: c.session.HomeID, Namespace: s.namespace, HomePods: c.session.HomeTranslations}
}

// sync reconciles one object, records an event for a refusal, and counts the result.
func (c *clusterReflector) sync(ctx context.Context, k key) (time.Duration, error) {
	logger := klog.FromContext(ctx).WithValues("kind", k.kind, "namespace", k.namespace, "name", k.name)
	after, err := c.syncObject(klog.NewContext(ctx, logger), k)
	result := inStep
	var no *refusal
	switch {
	case errors.As(err, &no):
		result = refused
		c.tell(k, no)
		after, err = refusedPeriod, nil
	case err != nil:
		result = retried
	default:
		c.refusals.forget(k)
	}
	c.syncs.WithLabelValues(c.session.Cluster, string(k.kind), result).Inc()
	return after, err
}

// syncObject updates the copy of one object. It returns after what time to do so again even if
// nothing changes; 0: never.
func (c *clusterReflector) syncObject(ctx context.Context, k key) (time.Duration, error) {
	s := c.namespaceOf(k.namespace)
	if s == nil {
		// When its namespace becomes usable, everything in it is queued.
		if k.kind == secretKind {
			c.secrets.unwatch(k.namespace, k.name)
		}
		return 0, nil
	}
	switch k.kind {
	case namespaceKind:
		c.syncNamespace(s)
		return 0, nil
	case configMapKind:
		return 0, c.syncConfigMap(ctx, s, k)
	case secretKind:
		return c.syncSecret(ctx, s, k)
	case serviceKind:
		return c.syncService(ctx, s, k)
	}
	return 0, nil
}

// needsIndex is the index of the pods on one node by the objects that they need, and by their
// namespace if they need anything. Its keys are those of indexKey.
const needsIndex = "lodestone.dev/needs"

func indexKey(node string, k key) string {
	return node + "/" + string(k.kind) + "/" + k.namespace + "/" + k.name
}

func indexNeeds(obj any) ([]string, error) {
	pod, ok := controller.Object[*corev1.Pod](obj)
	if !ok {
		return nil, nil
	}
	var result []string
	for _, k := range keysOf(pod) {
		result = append(result, indexKey(pod.Spec.NodeName, k))
	}
	return result, nil
}

// keysOf returns the objects that a pod needs in a remote cluster, including its namespace; none if
// it runs in no remote cluster.
func keysOf(pod *corev1.Pod) []key {
	if !needs.Anything(pod) {
		return nil
	}
	set := needs.Of(pod)
	result := []key{{kind: namespaceKind, namespace: pod.Namespace}}
	for _, name := range set.ConfigMaps {
		result = append(result, key{configMapKind, pod.Namespace, name})
	}
	for _, name := range set.Secrets {
		result = append(result, key{secretKind, pod.Namespace, name})
	}
	if set.Audience != "" {
		result = append(result, key{secretKind, pod.Namespace, needs.Token(pod.UID)})
	}
	return result
}

// needing returns the pods on the virtual node that need an object, or for the key of a namespace
// those in that namespace that need anything.
func (c *clusterReflector) needing(k key) iter.Seq[*corev1.Pod] {
	return controller.EachIndexed[corev1.Pod](c.pods, needsIndex, indexKey(c.session.Node, k))
}

// needed reports whether needing returns any.
func (c *clusterReflector) needed(k key) bool {
	for range controller.Identities(c.pods, needsIndex, indexKey(c.session.Node, k)) {
		return true
	}
	return false
}

// podChanged queues everything that a pod needed before or needs now. Either may be nil.
func (c *clusterReflector) podChanged(before, now *corev1.Pod) {
	old, current := c.here(before), c.here(now)
	if slices.Equal(old, current) && (before == nil || now == nil || needs.Of(before).Audience == needs.Of(now).Audience) {
		return
	}
	for _, k := range old {
		c.queue.Add(k)
	}
	for _, k := range current {
		c.queue.Add(k)
	}
}

func (c *clusterReflector) here(pod *corev1.Pod) []key {
	if pod == nil || pod.Spec.NodeName != c.session.Node {
		return nil
	}
	return keysOf(pod)
}

// homeConfigMapChanged queues a ConfigMap, or if it has home's certificate authority, the tokens,
// whose Secrets contain that.
func (c *clusterReflector) homeConfigMapChanged(configMap *corev1.ConfigMap) {
	if configMap.Name != needs.RootCA {
		c.queue.Add(key{configMapKind, configMap.Namespace, configMap.Name})
		return
	}
	for pod := range c.needing(key{kind: namespaceKind, namespace: configMap.Namespace}) {
		if needs.Of(pod).Audience != "" {
			c.queue.Add(key{secretKind, pod.Namespace, needs.Token(pod.UID)})
		}
	}
}

// homeSliceChanged queues the Service whose endpoints changed.
func (c *clusterReflector) homeSliceChanged(slice *discoveryv1.EndpointSlice) {
	if slice == nil {
		return
	}
	if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" && c.session.Network.Joined() {
		c.queue.Add(key{serviceKind, slice.Namespace, service})
	}
}

// refusal is the error of a step that cannot succeed until somebody changes something. Message is a
// sentence that says what.
type refusal struct {
	reason, message string
}

func (r *refusal) Error() string { return r.message }

// errForeign is the error of a step that found an object that is not ours.
var errForeign = errors.New("an object of that name is there that Lodestone did not make")

// foreign says what to do about an object of others that has the wanted name.
func (c *clusterReflector) foreign(s *remoteNamespace, k key) error {
	return &refusal{reason: "NameTaken", message: fmt.Sprintf(
		"%s %s did not follow the pods of its namespace to cluster %s: in namespace %s there another %s has its name and is left alone; rename "+
			"one of the two",
		k.kind, k.name, c.session.Cluster, s.namespace, k.kind)}
}

// sortError turns errors of the API server that would come again into refusals.
func sortError(err error) error {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err // the namespace may be created again
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return &refusal{reason: "Refused", message: quote(status.Status().Message)}
	}
	return err
}

// quote returns a message of another cluster as one line of limited length.
func quote(message string) string {
	const longest = 400
	line := strings.Join(strings.FieldsFunc(message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(line); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return line
}

// lastRefusals remembers which events were recorded on which object, so that a lasting refusal gets
// one event.
type lastRefusals struct {
	mu       sync.Mutex
	messages map[key]map[types.UID]string
}

// isNew reports whether a message is new for an object, and remembers it.
func (t *lastRefusals) isNew(k key, object types.UID, message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.messages == nil {
		t.messages = map[key]map[types.UID]string{}
	}
	if t.messages[k] == nil {
		t.messages[k] = map[types.UID]string{}
	}
	if t.messages[k][object] == message {
		return false
	}
	t.messages[k][object] = message
	return true
}

func (t *lastRefusals) forget(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.messages, k)
}

// tell records events on the pods that need an object, or on the Service that is not copied.
func (c *clusterReflector) tell(k key, no *refusal) {
	message := no.message
	if no.reason == "Refused" {
		message = fmt.Sprintf("%s %s did not follow the pods of its namespace to cluster %s: %s; ask the owner of that cluster, or change the %s",
			k.kind, k.name, c.session.Cluster, no.message, k.kind)
	}
	event := func(uid types.UID, object runtime.Object) {
		if c.refusals.isNew(k, uid, message) {
			c.Recorder.Event(object, corev1.EventTypeWarning, no.reason, message)
		}
	}
	if k.kind == serviceKind {
		if service, err := c.serviceLister.Services(k.namespace).Get(k.name); err == nil {
			event(service.UID, service)
		}
		return
	}
	for pod := range c.needing(k) {
		event(pod.UID, pod)
	}
}

// Results of work on one object.
const (
	inStep  = "in-step"
	retried = "retried"
	refused = "refused"
)

// newSyncs returns the count of such results, registered with
// registerer unless that is nil.
func newSyncs(registerer prometheus.Registerer) *prometheus.CounterVec {
	return promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "lodestone_virtualnode_reflections_total",
		Help: "Looks at single objects that follow pods to a remote cluster, by cluster, kind and result.",
	}, []string{"cluster", "kind", "result"})
}
