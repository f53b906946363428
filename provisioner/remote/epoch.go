package remote

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

// epochState is the condition HomeInForce. acts says whether home may change anything in the cluster, and in which epoch; 0: it keeps no
// mark there.
type epochState struct {
	acts            bool
	epoch           int64
	status          metav1.ConditionStatus
	reason, message string
}

func (e epochState) condition() metav1.Condition {
	if e.status == "" {
		return condition(v1alpha1.HomeInForce, metav1.ConditionUnknown, "NotTried", "it has not been read yet which home cluster acts there")
	}
	return condition(v1alpha1.HomeInForce, e.status, e.reason, e.message)
}

// notInForce is the reason of a cluster where this home does not act.
const notInForce = "HomeNotInForce"

const watching = "Watching"

// watches says that home will know soon, by itself, whether it acts there.
func (e epochState) watches() bool { return e.status == "" || e.reason == watching }

// epochMemory is what this process knows of the mark in one cluster.
type epochMemory struct {
	peering string
	mark    homeepoch.Mark
	// seen is since when the mark has been as it is; zero: it was never read.
	seen time.Time
	// beat is the last heartbeat beside it, by the clock of its sender, quiet since when there was no other.
	beat    metav1.MicroTime
	quiet   time.Time
	holding bool
	// renewed is when a renewal that succeeded was sent last.
	renewed time.Time
	state   epochState
	// podLease is what home asks for, and was promised, nil if it was never asked for.
	podLease *podlease.Record
}

// watch notes which mark is at a place, and returns for how long, and for how long no heartbeat came there.
func (m *epochMemory) watch(at *place, mark homeepoch.Mark, now time.Time) (watched, quiet time.Duration) {
	if m.peering != at.peering {
		*m = epochMemory{peering: at.peering}
	}
	beat := at.beat()
	if m.seen.IsZero() || !m.beat.Equal(&beat) {
		m.beat, m.quiet = beat, now
	}
	if m.seen.IsZero() || m.mark != mark {
		m.mark, m.seen = mark, now
	}
	return now.Sub(m.seen), now.Sub(m.quiet)
}

// knows says whether this process has seen a mark there last.
func (m *epochMemory) knows(peering string, mark homeepoch.Mark) bool {
	return m.peering == peering && !m.seen.IsZero() && m.mark == mark
}

// place is the Lease in a remote cluster that has the mark, and who keeps it.
type place struct {
	client  kubernetes.Interface
	peering string
	// namespace and name are those of the Lease. Where the remote agent makes it, home may not.
	namespace, name string
	made            bool
	// lease is nil if there is none.
	lease      *coordinationv1.Lease
	unreadable bool
	// promised is the lease that the remote agent shows.
	promised podlease.Ask
}

func (p *place) mark() homeepoch.Mark {
	if p.lease == nil {
		return homeepoch.Mark{}
	}
	return homeepoch.ParseMark(p.lease.Annotations[keys.HomeEpoch])
}

// beat is when virtual nodes have sent a heartbeat there last, zero for never.
func (p *place) beat() metav1.MicroTime {
	if p.lease == nil {
		return metav1.MicroTime{}
	}
	return ptr.Deref(p.lease.Spec.RenewTime, metav1.MicroTime{})
}

// keepEpoch renews the mark of this home in the cluster, and opens the gate for it if home may act
// there. It returns what to show, and when to look again; 0: as usual.
func (c *Cluster) keepEpoch(ctx context.Context, remote *v1alpha1.RemoteCluster, found finding) (epochState, time.Duration) {
	m := &c.epoch
	if c.gate.Open() && m.state.acts && time.Since(m.renewed) < c.clusters.interval/2 {
		return m.state, 0
	}
	state, again, err := c.stepEpoch(ctx, remote, found)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The mark of this home cluster will be renewed again", "err", err)
		if !c.gate.Open() && m.state.acts || m.state.status == "" {
			m.state = epochState{status: metav1.ConditionFalse, reason: "NotRenewed",
				message: fmt.Sprintf("home could not renew its mark there: %v; nothing is changed there until it can", cause(err))}
		}
		return m.state, 500 * time.Millisecond
	}
	c.tellEpoch(ctx, remote, m.state, state)
	m.state = state
	return state, again
}

// stepEpoch observes, decides and acts.
func (c *Cluster) stepEpoch(ctx context.Context, remote *v1alpha1.RemoteCluster, found finding) (epochState, time.Duration, error) {
	// The record first: a mark that was read later can only be newer.
	secret, record, err := c.clusters.epochRecord(ctx, c.id)
	if err != nil {
		return epochState{}, 0, err
	}
	at, err := c.current().epochPlace(ctx, found)
	if err != nil {
		return epochState{}, 0, err
	}
	now := time.Now()
	o := homeepoch.Observation{
		Record: record, Mark: at.mark(), Unreadable: at.unreadable, RemoteCluster: string(remote.UID), Peering: at.peering,
		Confirmed: remote.Annotations[keys.ConfirmedHome], Period: c.clusters.interval, Nonce: string(uuid.NewUUID()),
	}
	if !o.Unreadable {
		o.Arrived = record != nil && c.epoch.knows(at.peering, record.Next)
		o.Watched, o.Quiet = c.epoch.watch(at, o.Mark, now)
	}
	o.Holding = c.epoch.holding
	decision := homeepoch.Decide(o)
	switch decision.Do {
	case homeepoch.Unkept:
		c.gate.OpenUntil(now.Add(homeepoch.Validity(c.clusters.interval)))
		return unkept(), 0, nil
	case homeepoch.Suspect:
		// Only somebody who looks can end a doubt, so the mark has to be that of this cluster: another one may answer at its address by now.
		if err := c.current().sameCluster(ctx, found.clusterUID); err != nil {
			return epochState{}, 0, err
		}
		c.gate.Close()
		c.epoch.holding = false
		decision.Record.Doubt.Since = now.UTC().Truncate(time.Second)
		if err := c.clusters.storeEpoch(ctx, c.id, secret, decision.Record); err != nil {
			return epochState{}, 0, err
		}
		return doubtful(c.id, decision.Record, o), 0, nil
	case homeepoch.Stay:
		c.gate.Close()
		c.epoch.holding = false
		return doubtful(c.id, decision.Record, o), 0, nil
	case homeepoch.Wait:
		return c.awaitEpoch(decision, o)
	case homeepoch.Write:
	}
	decision.Record.PodLease = podlease.Next(decision.Record.PodLease, wantedLease(remote), at.promised)
	c.epoch.podLease = decision.Record.PodLease
	ctx, cancel := finishing(ctx)
	defer cancel()
	if record == nil || !equality.Semantic.DeepEqual(*record, decision.Record) {
		if err := c.clusters.storeEpoch(ctx, c.id, secret, decision.Record); err != nil {
			return epochState{}, 0, err
		}
	}
	sent := time.Now()
	err = at.write(ctx, decision.Record.Next, decision.Record.PodLease)
	// Whatever became of it, it may have arrived.
	c.beat()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		if decision.Record.Held.None() {
			c.gate.OpenUntil(now.Add(homeepoch.Validity(c.clusters.interval)))
			return unkept(), 0, nil
		}
		return epochState{}, 0, err
	case err != nil:
		return epochState{}, 0, err
	}
	c.epoch.watch(at, decision.Record.Next, time.Now())
	if !decision.Acts {
		return takingOver(c.id), time.Second, nil
	}
	c.epoch.holding, c.epoch.renewed = true, sent
	c.gate.OpenUntil(sent.Add(homeepoch.Validity(c.clusters.interval)))
	epoch := decision.Record.Next.Epoch
	return epochState{acts: true, epoch: epoch, status: metav1.ConditionTrue, reason: "InForce",
		message: fmt.Sprintf("this home cluster acts there, in epoch %d", epoch)}, 0, nil
}

// awaitEpoch says what home waits for. It may go on for as long as its last renewal is valid.
func (c *Cluster) awaitEpoch(d homeepoch.Decision, o homeepoch.Observation) (epochState, time.Duration, error) {
	if c.gate.Open() && c.epoch.state.acts {
		return c.epoch.state, time.Second, nil
	}
	again := min(max(d.Left, 10*time.Millisecond), c.clusters.interval)
	switch {
	case d.Record.Doubt != nil:
		state := epochState{status: metav1.ConditionFalse, reason: "TakingOver", message: fmt.Sprintf("this home cluster takes over once the "+
			"mark in cluster %s has stood still for %v, and no other copy sends heartbeats there: if one still works there, stop it", c.id,
			3*homeepoch.Validity(c.clusters.interval))}
		return state, again, nil
	case o.Unreadable:
		return epochState{status: metav1.ConditionFalse, reason: "NotReadable", message: "home cannot read its mark there: nothing is changed " +
			"there until it can"}, again, nil
	}
	return takingOver(c.id), again, nil
}

func takingOver(cluster string) epochState {
	return epochState{status: metav1.ConditionFalse, reason: watching, message: fmt.Sprintf("home watches for some seconds whether a copy "+
		"of it acts in cluster %s", cluster)}
}

func unkept() epochState {
	return epochState{acts: true, status: metav1.ConditionUnknown, reason: "NotKept", message: "home may keep no mark there, so it would " +
		"not notice if a copy of it acted there too: let the administrator apply the present deploy/remote or deploy/remote-volumes"}
}

// doubtful says why home does nothing there, and what to do.
func doubtful(cluster string, record homeepoch.Record, o homeepoch.Observation) epochState {
	var what string
	switch record.Doubt.Reason {
	case homeepoch.RemoteAhead:
		what = "a later mark of this home cluster than was written from here: this one was restored from a backup, or another copy of it acts " +
			"there"
	case homeepoch.RemoteBehind:
		what = "an earlier mark than was written from here: it was restored from a backup, or another copy of this home cluster acts there"
	case homeepoch.MarkMissing:
		what = "no mark any more: somebody took it away, or the cluster was restored from a backup"
	case homeepoch.NoRecord:
		what = "a mark of which this home cluster has no record: another copy of it acts there, or did, or its record was lost"
	default:
		what = "another mark than was written from here: another copy of this home cluster acts there"
	}
	now := "it has not changed since " + record.Doubt.Since.Format(time.RFC3339)
	if !o.Unreadable && o.Mark != record.Doubt.Found {
		now = "it changes now, so another copy works there"
	}
	return epochState{status: metav1.ConditionFalse, reason: record.Doubt.Reason, message: fmt.Sprintf("cluster %s has %s (%s there, "+
		"%s here; %s): nothing is made, changed or deleted there; once you have made sure that no other copy works, run kubectl lodestone "+
		"confirm %s",
		cluster, what, record.Doubt.Found, record.Next, now, cluster)}
}

// tellEpoch writes an event when home begins or ends to be in doubt.
func (c *Cluster) tellEpoch(ctx context.Context, remote *v1alpha1.RemoteCluster, before, now epochState) {
	if before.reason == now.reason || before.acts && now.acts {
		return
	}
	klog.FromContext(ctx).Info("Whether this home cluster acts there", "acts", now.acts, "reason", now.reason, "message", now.message)
	shown := epochState{}
	for _, condition := range remote.Status.Conditions {
		if condition.Type == v1alpha1.HomeInForce {
			shown = epochState{status: condition.Status, reason: condition.Reason}
		}
	}
	switch {
	case !now.acts && homeepoch.Doubtful(now.reason) && shown.reason != now.reason:
		c.clusters.event(remote, corev1.EventTypeWarning, "HomeInDoubt", now.message)
	case now.acts && (homeepoch.Doubtful(before.reason) || before.reason == "TakingOver" || shown.reason == "TakingOver"):
		c.clusters.event(remote, corev1.EventTypeNormal, "HomeConfirmed", now.message)
	}
}

// epochRecord reads home's record of a cluster from the API server, nil if there is none.
func (r *Clusters) epochRecord(ctx context.Context, id string) (*corev1.Secret, *homeepoch.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	secret, err := r.home.CoreV1().Secrets(r.namespace).Get(ctx, homeepoch.SecretName(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the record of the home epoch: %w", err)
	}
	if len(secret.Data[homeepoch.SecretKey]) == 0 {
		return secret, nil, nil
	}
	record, err := homeepoch.ParseRecord(secret.Data[homeepoch.SecretKey])
	return secret, record, err
}

// storeEpoch writes home's record of a cluster, unless it has changed since it was read. It stays as long as
// the mark does.
func (r *Clusters) storeEpoch(ctx context.Context, id string, before *corev1.Secret, record homeepoch.Record) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	text, err := record.Encode()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: homeepoch.SecretName(id)},
		Type: homeepoch.SecretType}
	if before != nil {
		secret = before.DeepCopy()
	}
	secret.Data = map[string][]byte{homeepoch.SecretKey: text}
	secrets := r.home.CoreV1().Secrets(r.namespace)
	if before == nil {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the record of the home epoch: %w", err)
	}
	return nil
}

// sameCluster returns an error unless the cluster that answers now has this UID.
func (c *connection) sameCluster(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	system, err := c.marks.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get namespace %s, which tells clusters apart: %w", metav1.NamespaceSystem, err)
	}
	if string(system.UID) != uid {
		return fmt.Errorf("another cluster answers at its address by now: its namespace %s has UID %s, not %s", metav1.NamespaceSystem,
			system.UID, uid)
	}
	return nil
}

// epochPlace reads the mark in the cluster: with the remote agent it is on the Lease in home's tenant
// namespace, otherwise on a Lease in lodestone-volumes.
func (c *connection) epochPlace(ctx context.Context, found finding) (*place, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	at := &place{client: c.marks, namespace: keys.TenantPrefix + c.homeID, name: keys.HeartbeatLease, made: true, peering: found.clusterUID}
	if found.asking {
		tenant, err := c.remote.HomeClusters().Get(ctx, c.homeID, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			at.unreadable = true
			return at, nil
		case err != nil:
			return nil, fmt.Errorf("read HomeCluster %s: %w", c.homeID, err)
		}
		at.peering += "/" + string(tenant.UID)
		at.promised = promisedBy(tenant)
	} else {
		at.namespace, at.name, at.made = keys.VolumesNamespace, "home-"+c.homeID, false
	}
	err := at.read(ctx)
	return at, err
}

func (p *place) read(ctx context.Context) error {
	lease, err := p.client.CoordinationV1().Leases(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !p.made:
		p.lease = nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		p.unreadable = true
	case err != nil:
		return fmt.Errorf("read Lease %s/%s: %w", p.namespace, p.name, err)
	case lease.Namespace != p.namespace || lease.Name != p.name:
		// No API server answers so.
		p.unreadable = true
	default:
		p.lease = lease
	}
	return nil
}

// write replaces the mark that was read by another one; an empty one takes it away. It fails if somebody
// else has replaced it. The virtual node program renews the same Lease. For the remote agent it is a heartbeat, which asks for a lease.
func (p *place) write(ctx context.Context, mark homeepoch.Mark, asks *podlease.Record) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	notes, err := notesOf(mark, asks)
	if err != nil {
		return err
	}
	before := p.mark()
	leases := p.client.CoordinationV1().Leases(p.namespace)
	for range 5 {
		if p.lease == nil {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}}
			setNotes(lease, notes)
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		} else {
			lease := p.lease.DeepCopy()
			setNotes(lease, notes)
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) {
			break
		}
		if err := p.read(ctx); err != nil {
			return err
		}
		if p.unreadable || p.lease == nil || p.mark() != before {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", p.namespace, p.name, err)
	}
	return nil
}

// notesOf returns the annotations of the Lease that have a mark and what home asks for; those that are empty are taken off.
func notesOf(mark homeepoch.Mark, asks *podlease.Record) (notes map[string]string, err error) {
	notes = map[string]string{keys.HomeEpoch: "", keys.PodLease: ""}
	if !mark.None() {
		if notes[keys.HomeEpoch], err = mark.Encode(); err != nil {
			return nil, err
		}
	}
	if asks != nil {
		notes[keys.PodLease], err = asks.Asked.Encode()
	}
	return notes, err
}

func setNotes(lease *coordinationv1.Lease, notes map[string]string) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	maps.Copy(lease.Annotations, notes)
	for key, text := range notes {
		if text == "" {
			delete(lease.Annotations, key)
		}
	}
}

// dropEpoch takes this home's mark out of a cluster whose RemoteCluster goes: who peers with it again
// begins anew.
func (c *Cluster) dropEpoch(ctx context.Context) error {
	connection := c.current()
	if connection == nil || !c.gate.Open() || !c.epoch.holding {
		return nil
	}
	c.mu.Lock()
	found := c.verdict.finding
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	secret, record, err := c.clusters.epochRecord(ctx, c.id)
	if err != nil {
		return err
	}
	at, err := connection.epochPlace(ctx, found)
	if err != nil {
		return err
	}
	if at.unreadable || !homeepoch.Explains(record, at.mark()) {
		return nil
	}
	none := podlease.Next(record.PodLease, 0, at.promised)
	if err := at.write(ctx, homeepoch.Mark{}, none); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return err
	}
	c.gate.Close()
	err = c.clusters.home.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the record of the home epoch: %w", err)
	}
	return nil
}

// releaseTimeout bounds how long the end of the program waits for remote clusters.
const releaseTimeout = 2 * time.Second

// finishing returns a context that goes on for releaseTimeout when ctx ends. A renewal that has begun is finished, for
// else it would not be known whether the mark has arrived: it could not be released, and the next leader would wait.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(releaseTimeout, cancel) })
	return on, func() { stop(); cancel() }
}

// Release says in all remote clusters that home's work has ended in good order, so that the next leader
// begins at once. Call it when nothing works any more.
func (r *Clusters) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	r.mu.Lock()
	ended := r.endedClusters
	r.mu.Unlock()
	var running sync.WaitGroup
	for _, one := range ended {
		running.Go(func() {
			if err := one.release(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("The next leader waits before it acts there", "cluster", one.cluster.id, "err", err)
			}
		})
	}
	running.Wait()
}

// endedCluster is a cluster whose goroutine has ended because the program ends.
type endedCluster struct {
	cluster    *Cluster
	connection *connection
	found      finding
}

func (e endedCluster) release(ctx context.Context) error {
	c := e.cluster
	if !c.gate.Open() || !c.epoch.holding {
		return nil
	}
	c.gate.Close()
	secret, record, err := c.clusters.epochRecord(ctx, c.id)
	if err != nil || record == nil {
		return err
	}
	at, err := e.connection.epochPlace(ctx, e.found)
	if err != nil || at.unreadable {
		return err
	}
	next, ok := homeepoch.Release(*record, at.mark(), string(uuid.NewUUID()))
	if !ok {
		return nil
	}
	if err := c.clusters.storeEpoch(ctx, c.id, secret, next); err != nil {
		return err
	}
	return at.write(ctx, next.Next, next.PodLease)
}
