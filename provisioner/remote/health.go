package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/untrusted"
)

// The pause between a probe of a cluster and one that a change in that cluster triggers is
// leastPause at first. If another trigger comes within the pause, the pause doubles, up to
// mostPause: somebody who changes storage classes there constantly must not make home
// probe, write and decide more often.
const (
	leastPause = time.Second
	mostPause  = 15 * time.Second
)

// signals trigger a probe of a cluster: now, which only home uses, or soon, after the
// pause.
type signals struct {
	now, soon chan struct{}
}

func newSignals() signals {
	return signals{now: make(chan struct{}, 1), soon: make(chan struct{}, 1)}
}

// CheckNow triggers a probe at once.
func (s signals) CheckNow() { signal(s.now) }

// CheckSoon triggers a probe after the pause, for example after a failed request or a
// change in the cluster.
func (s signals) CheckSoon() { signal(s.soon) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run probes the cluster at once, then in intervals and when triggered, until its
// RemoteCluster is gone or ctx ends.
func (c *Cluster) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", c.id)
	ctx = klog.NewContext(ctx, logger)
	defer c.disconnect()
	defer c.ended(ctx)
	c.repeat(ctx, func() (time.Duration, bool) {
		next := wait.Jitter(c.clusters.interval, 0.1)
		remote := c.clusters.Object(c.id)
		if remote == nil {
			return 0, false
		}
		again := c.probe(ctx, remote)
		if err := c.clusters.report(ctx, c, remote); err != nil {
			logger.V(2).Info("Status will be written again", "err", err)
			again = 200 * time.Millisecond
		} else if c.changed {
			// By now the extender can have read the status, too.
			c.changed = false
			c.clusters.listeners.clusterChanged(c.id, c.usable() && !c.leaving())
		}
		if again != 0 {
			next = again
		}
		return next, true
	})
}

// ended notes that the work for the cluster has ended with the program, for Release.
func (c *Cluster) ended(ctx context.Context) {
	connection := c.current()
	if ctx.Err() == nil || connection == nil {
		return
	}
	c.mu.Lock()
	ended := endedCluster{cluster: c, connection: connection, found: c.verdict.finding}
	c.mu.Unlock()
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()
	c.clusters.endedClusters = append(c.clusters.endedClusters, ended)
}

// repeat calls probe at once, then each time after the duration it returned, or earlier:
// for CheckNow at once, for CheckSoon when the pause is over. It returns when probe returns
// false or ctx ends.
func (s signals) repeat(ctx context.Context, probe func() (next time.Duration, on bool)) {
	timer, quiet := time.NewTimer(0), time.NewTimer(leastPause)
	defer timer.Stop()
	defer quiet.Stop()
	pause := leastPause
	var soon <-chan struct{} // s.soon; nil during a pause
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			select {
			case <-s.soon:
				pause, asked = min(2*pause, mostPause), true
			default:
				pause, soon = leastPause, s.soon
				continue
			}
		case <-soon:
			asked = true
		case <-timer.C:
		case <-s.now:
		}
		next, on := probe()
		if !on {
			return
		}
		timer.Reset(next)
		if asked || soon != nil {
			quiet.Reset(pause)
			soon = nil
		}
	}
}

// probe reconnects if the kubeconfig changed and checks the cluster. It returns when to
// probe again, 0 for the usual interval.
func (c *Cluster) probe(ctx context.Context, remote *v1alpha1.RemoteCluster) time.Duration {
	wasUsable := c.usable()
	wasLeaving := c.leaving()
	c.adopt(remote.UID)
	v := verdict{}
	if remote.DeletionTimestamp != nil {
		v.leaving = "it is being deleted"
	}
	data, err := c.clusters.kubeconfig(remote)
	switch {
	case err != nil:
		v.unconfigured = err.Error()
	case c.ignored():
		v.unconfigured, v.ignored = tooMuch, true
	default:
		if err := c.reconnect(ctx, data, remote); err != nil {
			v.unconfigured = err.Error()
		} else if c.exceedsMemory(ctx, remote) {
			v.unconfigured, v.ignored = tooMuch, true
		}
	}
	if v.unconfigured != "" {
		c.disconnect()
	}
	var again time.Duration
	if v.unconfigured == "" {
		v.finding = check(ctx, c.current().client, c.clusters.homeID)
		v.checked = true
		if v.clusterUID != "" {
			c.current().identify(v.clusterUID)
		}
		if ended := CredentialsOf(data).Ended(time.Now()); v.rejected && ended != "" {
			v.unauthorized = ended
		}
		again = c.countFailures(&v)
		if v.unreachable == "" && v.unauthorized == "" && c.checkRewound(ctx, remote) {
			v.unsynced, again = true, time.Millisecond
		}
		v.unwantedReason, v.unwanted = unwanted(remote, v.clusterUID, c.clusters.homeUID,
			controller.All[v1alpha1.RemoteCluster](c.clusters.objects), c.clusters.holdings(c.id))
		current := c.current()
		usable := v.unreachable == "" && v.unauthorized == "" && v.unwanted == ""
		if usable {
			var soon time.Duration
			if v.epoch, soon = c.keepEpoch(ctx, remote, v.finding); again == 0 {
				again = soon
			}
		} else {
			v.epoch = c.epoch.state
		}
		current.namespaces.SetUsable(current.ctx, usable && v.epoch.acts, v.asking)
		if usable {
			current.watchMore(ctx, v.room)
		}
		v.credentials = c.renew(ctx, remote, data, usable)
		v.unsynced = v.unsynced || !c.current().synced()
		if again == 0 && v.unsynced && v.unreachable == "" && v.unauthorized == "" {
			again = 50 * time.Millisecond
		}
	}
	c.mu.Lock()
	c.verdict = v
	usable, reason, message := v.usable()
	if usable != wasUsable {
		c.since = time.Now()
	}
	c.mu.Unlock()
	if left := (v.leaving != "") != wasLeaving; left && v.unconfigured == "" {
		c.current().namespaces.EnqueueAll()
	}
	if usable != wasUsable || (v.leaving != "") != wasLeaving {
		klog.FromContext(ctx).Info("Cluster changed", "usable", usable, "reason", reason, "message", message)
		c.changed = true
	}
	return again
}

// adopt drops the state of an earlier RemoteCluster of the same name.
func (c *Cluster) adopt(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid != uid {
		c.uid = uid
		clear(c.recorded)
	}
}

// reconnect makes a new connection if the kubeconfig has changed.
func (c *Cluster) reconnect(ctx context.Context, data []byte, remote *v1alpha1.RemoteCluster) error {
	strategy := remote.Spec.Namespaces.Strategy
	fingerprint, shape := fingerprintOf(data)+string(strategy), shapeOf(data, strategy)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil && c.fingerprint == fingerprint {
		return nil
	}
	config, err := clients.ParseKubeconfig(data)
	if err != nil {
		return err
	}
	if c.renewed(shape) {
		c.bearer.set(config.BearerToken)
		c.fingerprint = fingerprint
		return nil
	}
	config.UserAgent = "lodestone-provisioner"
	config.QPS, config.Burst = 300, 600 // the same limits as at home
	untrusted.Wrap(config)
	bearer := newBearer(config)
	marks, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	c.gate.Wrap(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	namespaces := remote.Status.Namespaces
	if c.connection != nil {
		namespaces = append(c.connection.watchedNamespaces(), namespaces...)
		c.connection.stop()
	}
	// The verdict about the old connection does not apply to the new one, which may lead elsewhere.
	c.gate.Close()
	c.verdict = verdict{leaving: c.verdict.leaving}
	c.since = time.Now()
	c.changed = true
	next := connect(ctx, c.id, client, c.clusters.homeID, c.clusters.listeners, namespaces, c.CheckSoon)
	next.dynamic, next.marks = custom, marks
	if err := c.keep(next, config, strategy); err != nil {
		next.stop()
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	c.connection, c.fingerprint, c.shape, c.bearer = next, fingerprint, shape, bearer
	return nil
}

func fingerprintOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// shapeOf is the fingerprint of a connection without its token; empty if it has no token.
func shapeOf(data []byte, strategy v1alpha1.NamespaceStrategy) string {
	without, err := KubeconfigWithToken(data, "")
	if err != nil {
		return ""
	}
	return fingerprintOf(without) + string(strategy)
}

// renewed says whether a kubeconfig with this shape differs from the present one only in
// the token while the connection is usable: then its watches can stay. The caller holds the
// lock.
func (c *Cluster) renewed(shape string) bool {
	usable, _, _ := c.verdict.usable()
	return c.connection != nil && usable && c.fingerprint != "" && c.bearer != nil && shape != "" && c.shape == shape
}

func (c *Cluster) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil {
		c.connection.stop()
		c.connection, c.fingerprint = nil, ""
	}
}

// checkTimeout bounds one check of a remote cluster.
const checkTimeout = 5 * time.Second

// finding is the result of one check of a remote cluster.
type finding struct {
	// unreachable and unauthorized are sentences for the user, empty if the check passed.
	unreachable  string
	unauthorized string
	// rejected: the API server does not accept the credentials.
	rejected   bool
	clusterUID string
	version    string
	// asking: the cluster creates namespaces on request of this home.
	asking bool
	// room: home has the right to read storage capacities.
	room bool
}

// needed are the cluster-wide rights without which nothing works. Rights in namespaces show
// when they are used.
var needed = []authorizationv1.ResourceAttributes{
	{Verb: "list", Resource: "persistentvolumes"},
	{Verb: "watch", Resource: "persistentvolumes"},
	{Verb: "get", Resource: "persistentvolumes"},
	{Verb: "list", Group: "storage.k8s.io", Resource: "storageclasses"},
	{Verb: "watch", Group: "storage.k8s.io", Resource: "storageclasses"},
}

// remedy tells the user how a kubeconfig gets the rights that it lacks.
const remedy = "if the remote agent runs there, let its owner look at the HomeCluster of this cluster (kubectl lodestone peer makes it); " +
	"otherwise apply deploy/remote-volumes"

// check sends the requests of one probe to a remote cluster.
func check(ctx context.Context, client kubernetes.Interface, homeID string) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var found finding
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return failed(err, "get namespace kube-system, which tells clusters apart")
	}
	found.clusterUID = string(system.UID)
	// Discovery().ServerVersion() takes no context, hence no deadline.
	var version apiversion.Info
	raw, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &version)
	}
	if err != nil {
		return failed(err, "get /version")
	}
	found.version = version.GitVersion
	var missing []string
	for _, attributes := range needed {
		ok, err := allowed(ctx, client, attributes)
		if err != nil {
			return failed(err, "ask for its own rights")
		}
		if !ok {
			missing = append(missing, attributes.Verb+" "+attributes.Resource)
		}
	}
	if len(missing) > 0 {
		found.unauthorized = fmt.Sprintf("the kubeconfig may not %s there: %s", strings.Join(missing, ", "), remedy)
		return found
	}
	if found.asking, err = asksForNamespaces(ctx, client, homeID); err != nil {
		return failed(err, "ask for its own rights")
	}
	if found.room, err = showsRoom(ctx, client); err != nil {
		return failed(err, "ask for its own rights")
	}
	return found
}

func allowed(ctx context.Context, client kubernetes.Interface, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// asksForNamespaces says whether a remote agent creates namespaces for this home: the
// cluster serves NamespaceRequests, and home may use them in its tenant namespace.
func asksForNamespaces(ctx context.Context, client kubernetes.Interface, homeID string) (bool, error) {
	ok, err := allowed(ctx, client, authorizationv1.ResourceAttributes{
		Verb: "create", Group: remotev1alpha1.GroupVersion.Group, Resource: "namespacerequests", Namespace: keys.TenantPrefix + homeID})
	if err != nil || !ok {
		return false, err
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/apis/" + remotev1alpha1.GroupVersion.String()).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// failed turns the error of a request into a finding; what names the purpose of the
// request.
func failed(err error, what string) finding {
	switch {
	case apierrors.IsUnauthorized(err):
		return finding{rejected: true, unauthorized: "its API server does not accept the credentials of the kubeconfig: renew them in the Secret"}
	case apierrors.IsForbidden(err):
		return finding{unauthorized: fmt.Sprintf("the kubeconfig may not %s there: %s", what, remedy)}
	}
	return finding{unreachable: fmt.Sprintf("its API server does not answer as it should: %v", cause(err))}
}

// cause shortens an error to its cause, without the address of the request.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", checkTimeout)
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Errorf("%.1000s", strings.ToValidUTF8(err.Error(), ""))
		}
		err = inner
	}
}

// countFailures counts failed probes in a row: one alone is not an outage. A cluster that
// comes back gets a new connection, because the watches of the old one may wait half a
// minute before they retry.
func (c *Cluster) countFailures(v *verdict) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.unreachable == "" {
		if c.failures >= 2 {
			c.fingerprint = ""
			c.failures = 0
			v.unsynced = true
			return time.Millisecond
		}
		c.failures = 0
		return 0
	}
	c.failures++
	if c.failures < 2 && c.verdict.checked && c.verdict.unreachable == "" {
		leaving := v.leaving
		*v = c.verdict
		v.leaving = leaving
		return 500 * time.Millisecond
	}
	return 0
}

// tooMuch tells the user why a cluster is disconnected.
var tooMuch = fmt.Sprintf("it told more than the %d MiB that are held of one cluster, so it is not listened to for %v: let its "+
	"administrator see whether it has that many volumes", maxBytes>>20, ignoreTime)

// ignoreTime is how long a cluster that sent too much data stays disconnected.
const ignoreTime = 5 * time.Minute

// ignored says whether the cluster is disconnected now because it sent too much data.
func (c *Cluster) ignored() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.ignoreUntil)
}

// exceedsMemory says whether the cached objects of the cluster exceed the memory limit, and
// then disconnects it for ignoreTime. It looks at the caches, whatever the checks returned:
// watches go on while checks fail.
func (c *Cluster) exceedsMemory(ctx context.Context, remote *v1alpha1.RemoteCluster) bool {
	size := c.current().size()
	if size <= maxBytes {
		return false
	}
	klog.FromContext(ctx).Info("The cluster told too much and is not listened to for a while", "bytes", size)
	c.clusters.event(remote, corev1.EventTypeWarning, "TooMuch", tooMuch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignoreUntil = time.Now().Add(ignoreTime)
	return true
}

// checkRewound drops the connection if the API server was reset to an older state. It says
// whether to probe again at once.
func (c *Cluster) checkRewound(ctx context.Context, remote *v1alpha1.RemoteCluster) bool {
	current := c.current()
	// A connection is never older than the state that it shows. This check also limits how
	// often a cluster that reports a reset in each probe is read anew.
	if time.Since(current.began) < c.clusters.interval {
		return false
	}
	switch rewound, err := current.rewound(ctx); {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("It is not known whether the cluster was restored from a backup", "err", err)
	case rewound:
		klog.FromContext(ctx).Info("The cluster tells an older state than before: all is read anew")
		c.clusters.event(remote, corev1.EventTypeWarning, "StateRewound",
			"its API server tells an older state than before, as one restored from a backup does: all there is read anew; see the events of "+
				"claims whose volumes are there")
		c.mu.Lock()
		c.fingerprint = ""
		c.mu.Unlock()
		return true
	}
	return false
}

// rewound says whether the API server has an older state than before, for example because
// it was restored from a backup. A watch that began before the reset shows neither changes
// nor an error until the new history is as long as the old one was.
func (c *connection) rewound(ctx context.Context) (bool, error) {
	before := c.newest()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	// A list without a resource version returns the latest state, whichever API server
	// answers.
	list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	now := list.ResourceVersion
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier(now, before) {
		return true, nil
	}
	c.latest = now
	return false, nil
}

// newest is the highest resource version of volumes seen so far. Other kinds may be in
// another etcd, so their versions cannot be compared with these.
func (c *connection) newest() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched := c.volumes.LastSyncResourceVersion()
	if c.latest == "" || earlier(c.latest, watched) {
		return watched
	}
	return c.latest
}

// earlier says whether resource version a is before b; false if either is not a number.
func earlier(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

func (c *Cluster) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict.leaving != ""
}

func (c *Cluster) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	usable, _, _ := c.verdict.usable()
	return usable
}
