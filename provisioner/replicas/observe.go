package replicas

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// observe reads the objects of a replica. After an error the observation is incomplete.
func (c *Controller) observe(ctx context.Context, w *activeReplica) (o decide.Observation, err error) {
	o = decide.Observation{Now: time.Now(), Refused: w.refused, RefusedAt: w.refusedAt}
	if w.record == nil {
		if w.record, err = c.read(ctx, w.uid); err != nil {
			return o, err
		}
	}
	replica, err := c.Replicas.Replicas(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case err == nil && replica.UID == w.uid:
		o.Replica = replica
	case err != nil && !apierrors.IsNotFound(err):
		return o, fmt.Errorf("look at VolumeReplica %s: %w", w.NamespacedName, err)
	}
	if w.record == nil {
		w.holding = false
		return o, nil
	}
	if o.Replica == nil {
		c.left(w.uid)
	}
	o.Record, o.Kept = w.record.record, w.keeps(o.Now)
	r := o.Record
	o.Claims = make([]decide.Claim, r.Len())
	for i := range r.Len() {
		claim := r.At(i).ClaimUID
		if over := c.FailedOver(claim); over.After(o.FailedOver) {
			o.FailedOver = over
		}
		o.Moving = o.Moving || c.Moving(claim)
	}
	if its := c.seenOf(r.Namespace, r.Claim); its.Claim != nil && its.Claim.UID == r.ClaimUID {
		o.At = its.At
	}
	o.MayBegin = o.Replica != nil && c.Records.hasTurn(decide.TurnOf(o), o.Now, c.isAway)
	w.sees(r, o.Now)
	if o.Replica != nil && o.Replica.DeletionTimestamp == nil && !w.holding {
		o.Runnable = w.runnable.of(ctx, c, r)
	}
	if r.Point == nil || !r.Point.Held() || r.Point.Stage == record.Thaw && !r.Point.Owed() || r.Point.Stage == record.Clean {
		w.hold, w.holding = decide.Unknown, false
	}
	if o.Hold = w.hold; r.Point != nil && r.Point.Held() && r.Point.Stage != record.Clean {
		return o, c.observeHeld(ctx, &o)
	}
	if err := c.observeStandby(ctx, w, &o); err != nil {
		return o, err
	}
	if r.Point == nil {
		return o, c.observeLeft(ctx, &o)
	}
	if err := c.observeSource(ctx, &o); err != nil {
		return o, err
	}
	switch {
	case o.Source.Unusable != "" || o.Standby.Unusable != "":
		w.reached, o.Reached = time.Time{}, o.Now
	case w.reached.IsZero():
		w.reached = o.Now
		fallthrough
	default:
		o.Reached = w.reached
	}
	var all []*movers.State
	for i := range o.Claims {
		all = append(all, &o.Claims[i].Reader, &o.Claims[i].Writer)
	}
	w.keyless.Note(o.Now, all...)
	for i := range o.Claims {
		if r.Point.Stage == record.Copy && r.Point.At(i).Root == "" {
			c.observeCopy(ctx, w.copies[i], r, i, &o)
		}
	}
	return o, nil
}

// left notes that the VolumeReplica of a record is gone: what it has stays until it may go, and nobody asks for more of it.
func (c *Controller) left(uid types.UID) {
	c.Records.leave(uid)
	c.Metrics.forget(uid)
}

// sees drops what is remembered of another point than the record's. After a restart a copy gets its full time again.
func (w *activeReplica) sees(r *record.Record, now time.Time) {
	number := int64(0)
	if r.Point != nil && r.Point.Stage == record.Copy {
		number = r.Point.Number
	}
	if number != w.point || len(w.copies) != r.Len() {
		w.close()
		w.point, w.copies = number, nil
		for range r.Len() {
			w.copies = append(w.copies, &activeCopy{advanced: now})
		}
	}
}

// clusterOf says whether a cluster can be asked.
func (c *Controller) clusterOf(ctx context.Context, id string) (at site.Site, seen decide.Cluster, err error) {
	if at, seen.Unusable = c.sites.Reach(id); seen.Unusable != "" && id != keys.Home {
		seen.Gone, err = c.Clusters.Gone(ctx, id)
	}
	seen.Epoch = at.HomeEpoch
	return at, seen, err
}

// answered notes an error of a remote cluster as its state; one of home is returned.
func (c *Controller) answered(at site.Site, id string, seen *decide.Cluster, err error) error {
	if err == nil || at.Home {
		return err
	}
	c.sites.Recheck(id)
	seen.Unusable = plain(fmt.Sprintf("cluster %s cannot be asked now: %v", id, err))
	return nil
}

func (c *Controller) observeStandby(ctx context.Context, w *activeReplica, o *decide.Observation) error {
	at, seen, err := c.clusterOf(ctx, o.Record.Head.Cluster)
	if o.Standby = seen; err != nil || seen.Unusable != "" {
		return err
	}
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	return c.answered(at, o.Record.Head.Cluster, &o.Standby, c.readStandby(ctx, at, w, o))
}

func (c *Controller) readStandby(ctx context.Context, at site.Site, w *activeReplica, o *decide.Observation) (err error) {
	r, p := o.Record, o.Record.Point
	if p == nil {
		if o.Strays, err = c.moversIn(ctx, at, r, r.Head.Namespace); err != nil {
			return err
		}
	}
	if p == nil && !r.Slots {
		o.Used = c.used(r)
		if err := c.readSealed(ctx, at, w, o); err != nil {
			return err
		}
		if err := c.askKept(ctx, at, w, o); err != nil {
			return err
		}
	}
	for i := range o.Claims {
		seen, head := &o.Claims[i], r.At(i).Head
		if seen.Head, err = at.Claim(ctx, head.Namespace, head.Name); err != nil {
			return err
		}
		if seen.HeadVolume, err = volumeOf(ctx, at, seen.Head); err != nil {
			return err
		}
		if r.Slots {
			if seen.Slot, err = at.Claim(ctx, head.Namespace, r.At(i).Slot.Name); err != nil {
				return err
			}
		}
		if p == nil {
			continue
		}
		if seen.Writer, _, err = copying.Read(ctx, at, c.moverOf(r, i, moverapi.Receiver)); err != nil {
			return err
		}
		seen.Writer.Problem = plain(seen.Writer.Problem)
		if err := c.observeBasis(ctx, at, r, i, seen); err != nil {
			return err
		}
		switch {
		case r.Slots:
		case p.Stage == record.Settle && seen.HeadVolume != nil && seen.HeadVolume.Spec.CSI != nil:
			seen.SealBy, seen.NoSeal, err = frozen.ClassOf(ctx, at, head.Cluster, seen.HeadVolume.Spec.CSI.Driver)
		case p.At(i).SealBy != "":
			_, seen.Seal, err = c.snapshotAt(ctx, at, r, frozen.Wanted{
				NamespacedName: types.NamespacedName{Namespace: head.Namespace, Name: r.SealName(i)}, Claim: head.Name, Volume: p.At(i).Head,
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// volumeOf returns the real volume that is bound to a real claim, nil if there is none.
func volumeOf(ctx context.Context, at site.Site, b *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if b == nil || b.Spec.VolumeName == "" {
		return nil, nil
	}
	real, err := at.Volume(ctx, b.Spec.VolumeName)
	if real != nil && (real.Spec.ClaimRef == nil || real.Spec.ClaimRef.UID != b.UID) {
		real = nil
	}
	return real, err
}

// used returns the names of versions that claims are to be made from which have no volume yet. A virtual claim in a remote cluster may
// have one long before its real claim there has.
func (c *Controller) used(r *record.Record) (names []string) {
	for _, claim := range c.Sources.MadeFromReplica(r.Namespace, r.Name) {
		names = append(names, claim.Annotations[keys.ReplicaVersion])
	}
	cluster := c.Clusters.Get(r.Head.Cluster)
	for v := range r.Sealed {
		for i := range r.Len() {
			at := types.NamespacedName{Namespace: r.Head.Namespace, Name: r.Sealed[v].At(i).Name}
			if r.Head.Cluster == keys.Home && len(c.Sources.MadeFrom(at)) > 0 || cluster != nil && len(cluster.MadeFrom(at)) > 0 {
				names = append(names, r.Sealed[v].Name)
			}
		}
	}
	return names
}

// snapshotAt reads a snapshot that a replica has taken.
func (c *Controller) snapshotAt(ctx context.Context, at site.Site, r *record.Record, want frozen.Wanted) (*volumesnapshot.Snapshot,
	decide.Snapshot, error) {
	if want.Whose = "this replica's"; want.Ours == nil {
		want.Ours = func(s *volumesnapshot.Snapshot) bool { return c.isOurs(s, r) }
	}
	taken, problem, wrong, err := frozen.Look(ctx, at, want)
	seen := decide.Snapshot{Problem: problem, Wrong: wrong}
	if taken != nil {
		seen.Exists, seen.UID, seen.Leaving = true, taken.UID, taken.DeletionTimestamp != nil
		seen.Ready = problem == "" && ptr.Deref(taken.Status.ReadyToUse, false)
		seen.Taken = seen.Ready || !wrong && taken.Status.CreationTime != nil && taken.Status.ContentName != nil
	}
	return taken, seen, err
}

// isOurs says whether the labels of an object name this replica. Users of a remote namespace can write those, too.
func (c *Controller) isOurs(object metav1.Object, r *record.Record) bool {
	labels := object.GetLabels()
	return labels[keys.ReplicaOf] == string(r.UID) && labels[keys.HomeID] == c.Place.HomeID
}

func (c *Controller) labels(r *record.Record) map[string]string {
	return map[string]string{keys.ReplicaOf: string(r.UID), keys.HomeID: c.Place.HomeID}
}

func (c *Controller) observeSource(ctx context.Context, o *decide.Observation) error {
	id := o.Record.Point.Source.Cluster
	at, seen, err := c.clusterOf(ctx, id)
	if o.Source = seen; err != nil || seen.Unusable != "" {
		return err
	}
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	return c.answered(at, id, &o.Source, c.readSource(ctx, at, o))
}

// observeLeft reads what is left of one of the points in Record.Left.
func (c *Controller) observeLeft(ctx context.Context, o *decide.Observation) error {
	for i := range o.Record.Left {
		left := &decide.Observation{Now: o.Now, Record: o.Record.OfLeft(i), Claims: make([]decide.Claim, o.Record.Len())}
		if err := c.observeSource(ctx, left); err != nil {
			return err
		}
		if o.Left = left; left.Source.Gone || left.Source.Unusable == "" {
			return nil
		}
	}
	return nil
}

func (c *Controller) readSource(ctx context.Context, at site.Site, o *decide.Observation) (err error) {
	r, p := o.Record, o.Record.Point
	if p.Group != nil {
		if err := c.readGroup(ctx, at, o); err != nil {
			return err
		}
	}
	for i := range o.Claims {
		seen, source := &o.Claims[i], p.At(i).Source
		if seen.Origin, err = at.Claim(ctx, source.Namespace, source.Name); err != nil {
			return err
		}
		if seen.Origin != nil && seen.Origin.UID == source.UID {
			_, seen.Labelled = seen.Origin.Labels[r.GroupLabel()]
		}
		if p.Group == nil || p.At(i).Taken != "" {
			if _, seen.Snapshot, err = c.snapshotAt(ctx, at, r, c.wantedOf(r, i)); err != nil {
				return err
			}
		}
		clone, err := at.Claim(ctx, source.Namespace, r.PointName(i))
		switch {
		case err != nil:
			return err
		case clone != nil && !c.isOurs(clone, r):
			seen.Snapshot.Wrong, seen.Snapshot.Problem = true, fmt.Sprintf("a claim %s/%s is there already and is not this replica's: remove it "+
				"there", clone.Namespace, clone.Name)
		default:
			seen.Clone = clone
		}
		if seen.Reader, _, err = copying.Read(ctx, at, c.moverOf(r, i, moverapi.Sender)); err != nil {
			return err
		}
		seen.Reader.Problem = plain(seen.Reader.Problem)
	}
	return nil
}

// readGroup reads the one snapshot of the sources of a point.
func (c *Controller) readGroup(ctx context.Context, at site.Site, o *decide.Observation) error {
	if at.Dynamic == nil {
		o.Group.Problem = "its cluster serves no VolumeGroupSnapshots now"
		return nil
	}
	found, err := c.groupOf(o.Record).Look(ctx, at, o.Record.Point.Group.UID == "")
	if err != nil {
		return err
	}
	o.Group.Snapshot = decide.Snapshot{UID: found.UID, Exists: found.Exists, Ready: found.Ready && found.Problem == "", Leaving: found.Leaving,
		Taken: found.Taken, Problem: found.Problem, Wrong: found.Wrong}
	if !o.Group.Ready || found.Members == nil {
		return nil
	}
	for i := range o.Claims {
		o.Group.Members = append(o.Group.Members, found.Members[o.Record.Point.At(i).Source.UID])
	}
	return nil
}

// groupOf is the one snapshot of the sources of a point.
func (c *Controller) groupOf(r *record.Record) frozen.Group {
	p := r.Point
	g := frozen.Group{NamespacedName: types.NamespacedName{Namespace: p.Source.Namespace, Name: r.PointName(0)}, By: p.By,
		Version: p.Group.Version, Label: r.GroupLabel(), Labels: c.labels(r), Whose: "this replica's"}
	for i := range r.Len() {
		g.Of = append(g.Of, frozen.Frozen{Ref: p.At(i).Source, Volume: p.At(i).Volume})
	}
	return g
}

// wantedOf is the snapshot of a source.
func (c *Controller) wantedOf(r *record.Record, i int) frozen.Wanted {
	p, known := r.Point, r.Point.At(i)
	want := frozen.Wanted{NamespacedName: types.NamespacedName{Namespace: known.Source.Namespace, Name: r.PointName(i)},
		Claim: known.Source.Name, Volume: known.Volume}
	if p.Group != nil {
		want.Name, want.Claim = known.Taken, ""
		want.Ours = func(s *volumesnapshot.Snapshot) bool { return frozen.IsMember(s, p.Group.UID) }
	}
	return want
}

// observeCopy reads the progress of the copy of a claim, and maintains the connection between its movers.
func (c *Controller) observeCopy(ctx context.Context, w *activeCopy, r *record.Record, i int, o *decide.Observation) {
	seen := &o.Claims[i]
	defer func() { seen.Advanced = w.advanced }()
	if !seen.Reader.Running {
		seen.CopyError = "it does not run"
		return
	}
	reader := c.moverOf(r, i, moverapi.Sender)
	client, err := c.copier.Client(&w.link, reader, r.Point.At(i).Keys[moverapi.Controller])
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, copying.AskTimeout)
		seen.Copy, err = client.Status(asking)
		cancel()
	}
	if err != nil {
		seen.Copy, seen.CopyError = nil, plain(err.Error())
		return
	}
	if seen.Writer.Running {
		c.copier.Connect(ctx, &w.link, copying.Pair{Reader: reader, Writer: c.moverOf(r, i, moverapi.Receiver),
			Pods: [2]types.UID{seen.Reader.Pod, seen.Writer.Pod}, Addresses: seen.Writer.IPs}, client, seen.Copy)
	}
	if why := w.link.LastError(); why != "" && !seen.Copy.Connected {
		seen.Copy.ConnectionError = plain(why)
	}
	if seen.Copy.Task != nil && w.furthest.Note(seen.Copy.Task) {
		w.advanced = o.Now
	}
}

// moverOf describes the mover of a claim in a role.
func (c *Controller) moverOf(r *record.Record, i int, role moverapi.Role) movers.Mover {
	p := r.Point.At(i)
	m := movers.Mover{
		Ref: r.At(i).Head, Name: r.MoverName(i, role), Session: r.SessionOf(i), Role: role, Block: p.Block, Scratch: p.Scratch,
		Keys: p.Keys[role], For: movers.Owner{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, UID: r.UID},
		Image: c.Image, HomeID: c.Place.HomeID,
	}
	if role == moverapi.Sender {
		m.Ref = p.Source
		m.Ref.Name = r.PointName(i)
	}
	return m
}

// longest limits the texts of other clusters in messages, in bytes.
const longest = 1024

// plain makes a text of another cluster or of a mover fit for a status: one line of limited length.
func plain(text string) string { return sentence.Short(sentence.Plain(text, len(text)), longest) }
