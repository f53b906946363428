package replicas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// refusal is why a replica or a point cannot begin now, in one sentence that says what to do.
type refusal decide.Refusal

func (r refusal) Error() string { return r.Text }

func refuse(reason, format string, args ...any) error {
	return refusal{reason, plain(fmt.Sprintf(format, args...))}
}

// begin finds out where the copies of claims go, and returns the first record.
func (c *Controller) begin(ctx context.Context, replica *v1alpha1.VolumeReplica) (*record.Record, error) {
	r := &record.Record{UID: replica.UID, Namespace: replica.Namespace, Name: replica.Name, Epoch: 1,
		Others: make([]record.Part, len(replica.Spec.Claims)-1)}
	for i, name := range replica.Spec.Claims {
		part, slots, err := c.beginOne(ctx, replica, i, name)
		if err != nil {
			return nil, err
		}
		*r.At(i), r.Slots = *part, r.Slots || slots
	}
	for _, other := range r.Others {
		if other.Head.Namespace != r.Head.Namespace {
			return nil, refuse(decide.Refused, "claims %q and %q have namespaces of their own in cluster %s, and the versions of several claims "+
				"are in one: make a VolumeReplica of each", r.Claim, other.Claim, r.Head.Cluster)
		}
	}
	for i := 0; r.Slots && i < r.Len(); i++ {
		r.At(i).Head, r.At(i).Slot = r.NameSlot(i), r.NameSlot(i)
	}
	return r, nil
}

// beginOne finds out where the copy of a claim goes; slots says that versions are to be in slots there.
func (c *Controller) beginOne(ctx context.Context, replica *v1alpha1.VolumeReplica, i int, name string) (_ *record.Part, slots bool,
	err error) {
	claim, err := c.sites.Home().Claim(ctx, replica.Namespace, name)
	switch {
	case err != nil:
		return nil, false, err
	case claim == nil:
		return nil, false, refuse(decide.ClaimGone, "there is no claim %q in namespace %s: create it", name, replica.Namespace)
	}
	standby := replica.Spec.Standbys[0]
	to, at, err := c.routeTo(claim, standby)
	if err != nil {
		return nil, false, err
	}
	// Find out before anything is copied how it could be sealed.
	if slots = replica.Spec.Versions.In == v1alpha1.InSlots; !slots {
		_, why, seen, err := frozen.SeenClassOf(ctx, at, standby.Cluster, to.Driver())
		switch slots = why != "" && replica.Spec.Versions.In == ""; {
		case err != nil:
			return nil, false, err
		case why != "" && !(slots && seen):
			return nil, false, refuse(decide.NoSnapshots, "no version can be sealed at the standby, for %s: let storage class %s there have "+
				"snapshots, name another in spec.standbys, or have spec.versions.in be Slots, which takes twice the room", why, to.Class.Name)
		}
	}
	key := types.NamespacedName{Namespace: c.Place.StorageNamespace, Name: record.HeadName(replica.UID, i)}
	if standby.Cluster != keys.Home {
		key.Namespace = c.Place.Of(standby.Cluster, c.Clusters.Object(standby.Cluster).Spec.Namespaces.Strategy,
			types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID).Namespace
	}
	return &record.Part{Claim: claim.Name, ClaimUID: claim.UID, Class: to.Class.Name,
		Head: backing.Ref{Cluster: standby.Cluster, Namespace: key.Namespace, Name: key.Name}}, slots, nil
}

// routeTo returns the real class of the copy of a claim at a standby, and that cluster.
func (c *Controller) routeTo(claim *corev1.PersistentVolumeClaim, standby v1alpha1.ReplicaStandby) (route.Route,
	site.Site, error) {
	at, err := c.reachStandby(standby.Cluster, claim.Namespace)
	if err != nil {
		return route.Route{}, at, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	if standby.Cluster != keys.Home {
		node.Name, node.Labels[keys.Cluster] = standby.Cluster, standby.Cluster
	}
	to, err := c.Targets.Route(claim, standby.ClassName, node)
	if err != nil {
		return to, at, refuse(decide.Refused, "%v", err)
	}
	return to, at, nil
}

// reachStandby returns a cluster in which a copy of a claim of a namespace can be made.
func (c *Controller) reachStandby(cluster, namespace string) (site.Site, error) {
	at, why := c.sites.Reach(cluster)
	if why != "" {
		return at, refuse(decide.ClusterAway, "%s", why)
	}
	if at.Home {
		return at, nil
	}
	if at.Remote == nil {
		return at, refuse(decide.Refused, "cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it", cluster)
	}
	if mapped := c.Targets.View(cluster, namespace).Mapped; mapped.Asked && !mapped.Given {
		return at, refuse(decide.Refused, "cluster %s gives namespace %s no place yet: %s", cluster, namespace, mapped.Message)
	}
	return at, nil
}

// beginPoint finds out what the next point is of, and returns the record with it.
func (c *Controller) beginPoint(ctx context.Context, replica *v1alpha1.VolumeReplica, r *record.Record) (*record.Record, error) {
	now := time.Now()
	next := r.Clone()
	next.Last++
	next.Point = &record.Point{Number: next.Last, Stage: record.Cut, Since: now, Cut: now, Others: make([]record.Session, len(r.Others))}
	for i := range r.Len() {
		session, by, err := c.beginSession(ctx, r, r.At(i))
		if err != nil {
			return nil, err
		}
		if session.Keys, err = moverapi.IssueKeys(next.SessionOf(i), now, decide.Validity); err != nil {
			return nil, err
		}
		if session.Basis, err = c.basisOf(ctx, next, i, session.Block); err != nil {
			return nil, err
		}
		*next.Point.At(i), next.Point.By = *session, by
	}
	if r.Len() > 1 {
		if err := c.beginGroup(ctx, next); err != nil {
			return nil, err
		}
	}
	if replica.Spec.Consistency == v1alpha1.ConsistencyFrozen {
		// Last, so that it is no older than it must be.
		f, err := c.beginFreeze(ctx, replica.Spec.Hooks, next, time.Now())
		if err != nil {
			return nil, err
		}
		next.Point.Freeze, next.Point.Stage = f, record.Freezing
	}
	return next, nil
}

// beginGroup finds out with which class one snapshot is taken of all sources of a point. Without one there is no point: versions of
// claims that are of different moments are not what was asked for.
func (c *Controller) beginGroup(ctx context.Context, r *record.Record) error {
	p := r.Point
	const instead = "so nothing is copied; where they need not be of one moment make a VolumeReplica of each claim"
	for i := range r.Len() {
		switch other := p.At(i); {
		case other.Source.Cluster != p.Source.Cluster:
			return refuse(decide.Refused, "the data of claim %q is in cluster %s and that of claim %q in cluster %s, where no snapshot can be of "+
				"one moment, %s, else move them together", r.Claim, p.Source.Cluster, r.At(i).Claim, other.Source.Cluster, instead)
		case other.Volume.Driver != p.Volume.Driver || other.Source.Namespace != p.Source.Namespace:
			return refuse(decide.NoSnapshots, "the volume of claim %q is of driver %s and that of claim %q of driver %s, which take no snapshot of "+
				"one moment, %s", r.Claim, p.Volume.Driver, r.At(i).Claim, other.Volume.Driver, instead)
		}
	}
	at, why := c.sites.Reach(p.Source.Cluster)
	if why != "" {
		return refuse(decide.ClusterAway, "%s: the data of claim %q is there", why, r.Claim)
	}
	by, version, why, err := frozen.ChooseGroup(ctx, at, p.Source.Cluster, p.Volume.Driver)
	switch {
	case err != nil:
		return err
	case why != "":
		return refuse(decide.NoSnapshots, "no snapshot of one moment can be taken of claims %s, for %s, %s", strings.Join(r.Claims(), ", "), why,
			instead)
	}
	p.By, p.Group = by, &record.Group{Version: version}
	return nil
}

// beginSession finds out what the next point is of, for one claim, and with which VolumeSnapshotClass a snapshot of it is taken.
func (c *Controller) beginSession(ctx context.Context, r *record.Record, part *record.Part) (_ *record.Session, by string, err error) {
	claim, volume, err := c.virtual(ctx, r.Namespace, part)
	if err != nil {
		return nil, "", err
	}
	from, err := backing.RefOf(volume)
	switch {
	case err != nil:
		return nil, "", refuse(decide.Refused, "volume %s of claim %q is not one that Lodestone made: %v", volume.Name, claim.Name, err)
	case from.Cluster == r.Head.Cluster:
		return nil, "", refuse(decide.SameCluster, "the data of claim %q is in cluster %s, where its copy is, too: move the claim elsewhere, or "+
			"make a VolumeReplica with another standby and delete this one; the versions stay until then", claim.Name, from.Cluster)
	case r.LeftIn(from.Cluster):
		return nil, "", refuse(decide.Waiting, "what an earlier point has left in cluster %s is removed first", from.Cluster)
	}
	at, why := c.sites.Reach(from.Cluster)
	if why != "" {
		return nil, "", refuse(decide.ClusterAway, "%s: the data of claim %q is there", why, claim.Name)
	}
	if !at.Home && at.Remote == nil {
		return nil, "", refuse(decide.Refused, "cluster %s runs no remote agent, which makes the movers there: install deploy/remote in it",
			from.Cluster)
	}
	b, err := at.Claim(ctx, from.Namespace, from.Name)
	switch {
	case err != nil:
		return nil, "", err
	case b == nil || b.UID != from.UID || b.DeletionTimestamp != nil || b.Status.Phase != corev1.ClaimBound:
		return nil, "", refuse(decide.Refused, "real claim %s behind claim %q is not bound to a real volume: see its events in %s", from.Key(),
			claim.Name, from.Cluster)
	case !backing.IsOf(b, claim.UID, c.Place.HomeID) || backing.Misbound(volume, b):
		return nil, "", refuse(decide.Refused, "real claim %s behind claim %q is not its own: see the events of the claim", from.Key(),
			claim.Name)
	case ptr.Deref(b.Spec.StorageClassName, "") == "":
		return nil, "", refuse(decide.NoSnapshots, "real claim %s has no storage class, which the claim made of a snapshot needs", from.Key())
	}
	by, frozenVolume, why, err := frozen.Choose(ctx, c.sites, from, b.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, "", err
	case why != "":
		return nil, "", refuse(decide.NoSnapshots, "no snapshot can be taken of claim %q, for %s: a point that is not of one moment would be no "+
			"copy to fall back on, so none is made; let the class of the volume have snapshots", claim.Name, why)
	}
	node, err := c.witness.NodeOfUsers(ctx, at, types.NamespacedName{Namespace: r.Namespace, Name: part.Claim}, from, "")
	if err != nil {
		return nil, "", err
	}
	if err := c.growHead(ctx, r.Namespace, part, volume); err != nil {
		return nil, "", err
	}
	return &record.Session{Source: from, SourceClass: *b.Spec.StorageClassName, Volume: frozenVolume, Block: movers.IsBlock(volume),
		Scratch: movers.ScratchLimit(c.Scratch, volume), Node: node}, by, nil
}

// virtual returns a virtual claim of a replica in a namespace, and its volume.
func (c *Controller) virtual(ctx context.Context, namespace string, r *record.Part) (*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolume, error) {
	claim, err := c.sites.Home().Claim(ctx, namespace, r.Claim)
	switch {
	case err != nil:
		return nil, nil, err
	case claim == nil || claim.DeletionTimestamp != nil:
		return nil, nil, refuse(decide.ClaimGone, "claim %q was deleted: no point is made any more, and what is sealed stays until the "+
			"VolumeReplica is deleted", r.Claim)
	case claim.UID != r.ClaimUID:
		return nil, nil, refuse(decide.ClaimGone, "claim %q is another one than this VolumeReplica was made for: make another VolumeReplica, "+
			"and delete this one once nothing that it has sealed is needed", r.Claim)
	case claim.Labels[keys.Moving] != "" || claim.Annotations[keys.Newer] != "":
		return nil, nil, refuse(decide.Moving, "claim %q is locked as for a move: see its events", r.Claim)
	case claim.Spec.VolumeName == "":
		return nil, nil, refuse(decide.Waiting, "claim %q has no volume yet: let a pod use it first", r.Claim)
	}
	volume, err := c.sites.Home().Volume(ctx, claim.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, err
	case volume == nil || volume.Annotations[keys.Backing] == "" || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return nil, nil, refuse(decide.Refused, "claim %q has no volume that Lodestone made: copy its data to a claim of a virtual storage class",
			r.Claim)
	case volume.Annotations[keys.Healing] != "" || volume.Annotations[keys.Lost] != "":
		return nil, nil, refuse(decide.Refused, "volume %s of claim %q is being healed, or was declared lost", volume.Name, r.Claim)
	}
	return claim, volume, nil
}

// growHead has the real claim at the standby ask for as much as the claim's volume has.
func (c *Controller) growHead(ctx context.Context, namespace string, r *record.Part, volume *corev1.PersistentVolume) error {
	if r.Head.UID == "" {
		return nil
	}
	at, err := c.reachStandby(r.Head.Cluster, namespace)
	if err != nil {
		return err
	}
	head, err := at.Claim(ctx, r.Head.Namespace, r.Head.Name)
	if err != nil || head == nil || head.UID != r.Head.UID {
		return err
	}
	want, have := volume.Spec.Capacity[corev1.ResourceStorage], head.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := head.Status.Capacity[corev1.ResourceStorage]; want.Cmp(have) <= 0 || want.Cmp(has) <= 0 {
		return nil
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(head.Namespace).Patch(ctx, head.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"resources":{"requests":{"storage":%q}}}}`, head.UID, want.String()),
		metav1.PatchOptions{})
	why, err := frozen.RefusalOf(err)
	if why != "" {
		return refuse(decide.Refused, "the claim has grown to %s, and the copy at the standby cannot: %s; let storage class %s there allow "+
			"expansion, or make another VolumeReplica", want.String(), why, r.Class)
	}
	return err
}

// headClaim builds the real claim of a claim at the standby. It is no backing claim: nothing but this replica knows it.
func (c *Controller) headClaim(ctx context.Context, r *record.Record, part *record.Part) (*corev1.PersistentVolumeClaim, site.Site, error) {
	claim, volume, err := c.virtual(ctx, r.Namespace, part)
	if err != nil {
		return nil, site.Site{}, err
	}
	to, at, err := c.routeTo(claim, v1alpha1.ReplicaStandby{Cluster: part.Head.Cluster, ClassName: part.Class})
	if err != nil {
		return nil, at, err
	}
	plainClaim := claim.DeepCopy()
	plainClaim.Spec.DataSource, plainClaim.Spec.DataSourceRef = nil, nil
	head := route.BackingClaim(plainClaim, to, part.Head.Key(), c.Place.HomeID)
	head.Labels, head.Finalizers = c.labels(r), nil
	head.Annotations = map[string]string{keys.Unpublished: "true"}
	if have := volume.Spec.Capacity[corev1.ResourceStorage]; have.Cmp(head.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
		// The volume may be larger than its claim asked for, and use that.
		head.Spec.Resources.Requests[corev1.ResourceStorage] = have
	}
	return head, at, nil
}

// refusalOf returns the refusal that an error is; other errors are returned.
func refusalOf(err error) (decide.Refusal, error) {
	var refused refusal
	if errors.As(err, &refused) {
		return decide.Refusal{Reason: refused.Reason, Text: strings.TrimSpace(refused.Text)}, nil
	}
	return decide.Refusal{}, err
}
