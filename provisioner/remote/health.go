// This file is one probe of a remote cluster: it is connected, asked, and judged. It is long because the verdict has many
// obstacles, each with its sentence, and they are found in this order.

package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/untrusted"
)

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

// checkTimeout bounds one check of a remote cluster, and each request for the mark of home there.
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

// check asks a remote cluster what one probe wants to know. It asks all at once, so that a cluster that is far
// away or slow answers within the time all the same.
func check(ctx context.Context, client kubernetes.Interface, homeID string) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var system *corev1.Namespace
	var version apiversion.Info
	var asking, room bool
	held := make([]bool, len(needed))
	const ownRights = "ask for its own rights"
	questions := []question{
		{"get namespace kube-system, which tells clusters apart", func() (err error) {
			system, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
			return err
		}},
		{"get /version", func() error {
			// Discovery().ServerVersion() takes no context, hence no deadline.
			raw, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
			if err != nil {
				return err
			}
			return json.Unmarshal(raw, &version)
		}},
	}
	for i, attributes := range needed {
		questions = append(questions, question{ownRights, func() (err error) {
			held[i], err = allowed(ctx, client, attributes)
			return err
		}})
	}
	questions = append(questions,
		question{ownRights, func() (err error) {
			asking, err = asksForNamespaces(ctx, client, homeID)
			return err
		}},
		question{ownRights, func() (err error) {
			room, err = showsRoom(ctx, client)
			return err
		}})
	if what, err := askAll(questions); err != nil {
		return failed(err, what)
	}
	found := finding{clusterUID: string(system.UID), version: version.GitVersion}
	var missing []string
	for i, attributes := range needed {
		if !held[i] {
			missing = append(missing, attributes.Verb+" "+attributes.Resource)
		}
	}
	if len(missing) > 0 {
		found.unauthorized = fmt.Sprintf("the kubeconfig may not %s there: %s", strings.Join(missing, ", "), remedy)
		return found
	}
	found.asking, found.room = asking, room
	return found
}

// question is a request to a remote cluster, and what it is for, as a user reads it.
type question struct {
	what string
	ask  func() error
}

// askAll asks all questions at once, and returns what the first of them is for that failed, and its error.
func askAll(questions []question) (what string, err error) {
	errs := make([]error, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() { errs[i] = q.ask() })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return questions[i].what, err
		}
	}
	return "", nil
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

// verdict is the result of a probe of a remote cluster.
type verdict struct {
	finding
	// unconfigured is a sentence if there is no usable kubeconfig.
	unconfigured string
	// ignored is true if the cluster is disconnected because it sent too much data;
	// unconfigured says so.
	ignored bool
	// unwanted is a sentence if the cluster must not be used: it is the home cluster, or
	// another RemoteCluster uses it.
	unwanted       string
	unwantedReason string
	leaving        string
	// epoch says whether this home, and no copy of it, acts there.
	epoch    epochState
	unsynced bool
	checked  bool
	// credentials is the condition CredentialsValid.
	credentials metav1.Condition
}

// notReachable is the reason of the condition Ready of a cluster that does not answer.
const notReachable = "NotReachable"

// usable says whether requests may be sent to the cluster. That includes a cluster whose
// RemoteCluster is being deleted, since its volumes must be served.
func (v verdict) usable() (ok bool, reason, message string) {
	without := v
	without.leaving = ""
	ready := meta.FindStatusCondition(without.conditions(0), v1alpha1.Ready)
	return ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
}

// conditions returns the conditions for a verdict. The first obstacle gives Ready its
// reason and message.
func (v verdict) conditions(generation int64) []metav1.Condition {
	reachable := condition(v1alpha1.Reachable, metav1.ConditionTrue, "Answers", "its API server answers")
	authorized := condition(v1alpha1.Authorized, metav1.ConditionTrue, "HasRights",
		"the kubeconfig has the cluster-wide rights that are needed")
	ready := condition(v1alpha1.Ready, metav1.ConditionTrue, "Ready", "volumes can be made there")
	switch {
	case v.ignored:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "TooMuch", v.unconfigured)
	case v.unconfigured != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", "there is no usable kubeconfig")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
	case !v.checked:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Checking", "its API server is being asked")
	case v.unreachable != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionFalse, "NoAnswer", v.unreachable)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NoAnswer", "its API server does not answer")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, notReachable, v.unreachable)
	case v.unauthorized != "":
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "MissingRights", v.unauthorized)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "NotAuthorized", v.unauthorized)
	case v.unwanted != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, v.unwantedReason, v.unwanted)
	case !v.epoch.acts:
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, notInForce, v.epoch.condition().Message)
	case v.leaving != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Leaving", v.leaving)
	case v.unsynced:
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Syncing", "its volumes and storage classes are being read")
	}
	credentials := v.credentials
	if credentials.Type == "" {
		credentials = condition(v1alpha1.CredentialsValid, metav1.ConditionUnknown, "NotRead", "there is no usable kubeconfig")
	}
	result := []metav1.Condition{ready, reachable, authorized, credentials, v.epoch.condition()}
	for i := range result {
		result[i].ObservedGeneration = generation
	}
	return result
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// otherCluster is the reason of a RemoteCluster that no longer leads to the cluster with
// its volumes.
const otherCluster = "OtherCluster"

// holdings is what home has stored in a remote cluster.
type holdings struct {
	// count is how many volumes and snapshots have their data there.
	count int
	// uids are the UIDs of clusters that the volumes carry.
	uids []string
}

// unwanted returns why a RemoteCluster must not be used, given the UID of the cluster that
// it leads to, the home cluster's UID, all RemoteClusters, and what has its data in the cluster
// that it led to before. What the volumes carry counts even if the RemoteCluster was made anew, and
// so does what kubectl lodestone peer wrote: only the status is lost then.
func unwanted(self *v1alpha1.RemoteCluster, clusterUID, homeUID string, all []*v1alpha1.RemoteCluster, has holdings) (reason,
	message string) {
	if clusterUID == "" {
		return "", ""
	}
	if clusterUID == homeUID {
		return "PointsHome", "the kubeconfig leads to the home cluster itself: use that of another cluster"
	}
	if has.count > 0 {
		for _, recorded := range append([]string{self.Status.ClusterUID}, has.uids...) {
			if recorded != "" && recorded != clusterUID {
				// A wrong cluster would answer that the volumes are gone.
				return otherCluster, fmt.Sprintf("the kubeconfig leads to another cluster than the one that holds %d volumes or snapshots: put "+
					"back the kubeconfig of that one", has.count)
			}
		}
	}
	if made := self.Annotations[keys.ClusterUID]; made != "" && made != clusterUID {
		return otherCluster, fmt.Sprintf("the kubeconfig leads to another cluster than the one that kubectl lodestone peer made this "+
			"RemoteCluster for: put back the kubeconfig of that one, or, if this one is meant, delete the annotation %s", keys.ClusterUID)
	}
	for _, other := range all {
		if other.Name == self.Name || other.Status.ClusterUID != clusterUID {
			continue
		}
		if remotecluster.Older(other, self) {
			return "Duplicate", fmt.Sprintf("RemoteCluster %q already stands for this cluster: delete one of the two", other.Name)
		}
	}
	return "", ""
}

// holdings returns what home has stored in a cluster.
func (r *Clusters) holdings(id string) holdings {
	taken, _ := r.contents.Snapshots(id)
	return holdings{count: r.contents.Volumes(id) + taken, uids: r.contents.ClusterUIDs(id)}
}
