package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

const driver = "disk.csi.dev"

// copyIn makes the claim a copy of shop/source, whose data is in a cluster: bound, 1 GiB,
// of the driver of all classes.
func copyIn(place string, alter ...func(*steps.Source)) change {
	return func(o *steps.Observation) {
		o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		o.Claim.Spec.Resources.Requests = gibibytes("1Gi")
		backing := types.NamespacedName{Namespace: "shop", Name: "source"}
		if place == keys.Home {
			backing = types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-s1"}
		}
		s := &steps.Source{
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "source", UID: "s1",
				Annotations: map[string]string{}}},
			Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-s1", Annotations: map[string]string{
				keys.Backing: place + "/" + backing.String() + "/b-source"}}},
			Backings: []steps.Backing{{
				Cluster: place,
				Claim: &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: backing.Namespace, Name: backing.Name, UID: "b-source"},
					Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("1Gi")}},
					Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
				},
				Volume: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}}},
			}},
		}
		for _, a := range alter {
			a(s)
		}
		o.Source = s
		for _, id := range []string{keys.Home, "west", "east"} {
			driven(id, driver)(o)
		}
	}
}

func gibibytes(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// driven sets the driver of all classes of a cluster.
func driven(id, by string) change {
	return cluster(id, func(c *steps.Cluster) {
		offered := append([]v1alpha1.OfferedClass(nil), c.Offered...)
		for i := range offered {
			offered[i].Provisioner = by
		}
		c.Offered = offered
	})
}

// fromSource makes a backing claim a copy, fromGone a copy of a deleted source.
func fromSource(b *steps.Backing) {
	name := "source"
	if b.Cluster == keys.Home {
		name = "pvc-s1"
	}
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
}

func fromGone(b *steps.Backing) {
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "pvc-s0"}
}

// made marks the volume of a backing claim as created for it by the driver.
func made(b *steps.Backing) {
	pvcBound(b)
	b.Volume.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": driver}
	b.Volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
}

func emptyMade(b *steps.Backing)    { made(b); b.Volume.Spec.CSI = nil }
func sourceGone(s *steps.Source)    { *s = steps.Source{} }
func sourceGoing(s *steps.Source)   { s.Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
func sourceForeign(s *steps.Source) { s.Foreign, s.Volume, s.Backings = true, nil, nil }
func sourceUnbound(s *steps.Source) { s.Volume, s.Backings = nil, nil }
func sourceMoving(s *steps.Source)  { s.Claim.Annotations[keys.Move] = "m1" }
func sourceUnseen(s *steps.Source)  { s.Backings = nil }
func sourceOther(s *steps.Source)   { s.Backings[0].Claim.UID = "b-later" }
func sourceWaits(s *steps.Source) {
	s.Backings[0].Claim.Status.Phase, s.Backings[0].Volume = corev1.ClaimPending, nil
}
func sourceEnds(s *steps.Source) {
	s.Backings[0].Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now))
}
func sourcePlain(s *steps.Source) { s.Backings[0].Volume.Spec.CSI = nil }
func sourceBlock(s *steps.Source) {
	s.Backings[0].Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}
func sourceLarger(s *steps.Source) {
	s.Backings[0].Claim.Spec.Resources.Requests = gibibytes("1025Mi")
}
func sourceNamed(s *steps.Source) { s.Volume.Annotations[keys.Backing] = "nonsense" }

func TestNextOfACopy(t *testing.T) {
	const idle, told = "Idle", "SourceNotBound"
	home, west := func(alter ...func(*steps.Source)) []change {
		return []change{on("node-1"), copyIn(keys.Home, alter...)}
	},
		func(alter ...func(*steps.Source)) []change {
			return []change{on("west-1"), annotated(keys.Routed, "west"), copyIn("west", alter...)}
		}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	rows := map[string]row{
		"a copy at home is made at once":     {given: home(), verb: "Create", cluster: keys.Home},
		"a copy in a remote cluster is made": {given: west(), verb: "Create", cluster: "west"},
		"a source elsewhere sends the claim away": {given: []change{on("node-1"), copyIn("west")}, verb: "Reschedule", cluster: keys.Home,
			tell: "SourceElsewhere", refuse: "home/ SourceElsewhere"},
		"… after what was made for it": {
			given: []change{on("node-1"), copyIn("west"), have(keys.Home, fromGone)}, verb: "Remove", cluster: keys.Home},
		"a class of another driver is refused": {
			given: with(home(), driven(keys.Home, "other.csi.dev")), verb: "Reschedule", cluster: keys.Home, tell: "SourceOfAnotherDriver",
			refuse: "home/ SourceOfAnotherDriver"},
		"a source that no driver made is refused, for its copy would be empty": {
			given: west(sourcePlain), verb: "Reschedule", cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "west/ SourceOfAnotherDriver"},
		"hand-made volumes are copies of nothing": {
			given: with(home(), cluster(keys.Home, func(c *steps.Cluster) {
				c.Offered = []v1alpha1.OfferedClass{{Name: "nfs", Default: true, Static: true, Provisioner: "kubernetes.io/no-provisioner",
					BindingMode: storagev1.VolumeBindingImmediate}}
			})), verb: "Reschedule", cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "home/ SourceOfAnotherDriver"},
		"a provisioner that may have another name is asked": {given: with(home(), driven(keys.Home, "kubernetes.io/disk")), verb: "Create",
			cluster: keys.Home},
		"a complete copy needs no source any more": {given: with(home(sourceGone), have(keys.Home, fromSource, made)), verb: "Publish",
			cluster: keys.Home},
		"a complete copy of what was moved since is one": {given: []change{on("node-1"), copyIn("west"), have(keys.Home, fromSource, made)},
			verb: "Publish", cluster: keys.Home},
		"a copy that is on its way is waited for":       {given: with(home(), have(keys.Home, fromSource)), verb: idle, after: true},
		"a copy there is published once it is admitted": {given: with(west(), have("west", fromSource)), verb: "Publish", cluster: keys.Home},
		"… but not while its source is gone, for no pod could ever start": {
			given: with(west(sourceGone), have("west", fromSource)), verb: idle, tell: told},
		"a copy of a source that was made anew is made anew": {given: with(home(), have(keys.Home, fromGone)), verb: "Remove",
			cluster: keys.Home},
		"a copy whose source was dropped goes, and the place is refused": {
			given: with(home(), have(keys.Home)), verb: "Remove", cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"an empty volume goes, and the place is refused": {
			given: with(home(), have(keys.Home, fromSource, emptyMade)), verb: "Remove", cluster: keys.Home, tell: "SourceIgnored",
			refuse: "home/ SourceIgnored"},
		"a volume that was there before is no copy, and is left alone": {
			given: with(home(), have(keys.Home, fromSource, pvcBound)), verb: idle, tell: "SourceIgnored"},
		"a copy that nobody makes any more goes, or it would hold its source": {
			given: with(home(sourceGoing), have(keys.Home, fromSource, dropped)), verb: "Remove", cluster: keys.Home, tell: "NoCapacity",
			refuse: "home/node-1 NoCapacity"},
		"… also when its source is gone": {
			given: with(home(sourceGone), have(keys.Home, fromSource, dropped)), verb: "Remove", cluster: keys.Home, tell: "NoCapacity",
			refuse: "home/node-1 NoCapacity"},
		"a copy that may still be made is waited for while its source goes": {
			given: with(home(sourceGoing), have(keys.Home, fromSource)), verb: idle, tell: told},
		"a claim whose attributes class was dropped goes, and the place is refused": {
			given: []change{on("node-1"), have(keys.Home), attributes("gold")}, verb: "Remove", cluster: keys.Home, tell: "AttributesIgnored",
			refuse: "home/ AttributesIgnored"},
	}
	for name, state := range map[string]struct {
		alter func(*steps.Source)
		tell  string
	}{
		"does not exist":                  {sourceGone, told},
		"is being deleted":                {sourceGoing, told},
		"has no volume":                   {sourceUnbound, told},
		"is being moved":                  {sourceMoving, told},
		"has a volume of a real class":    {sourceForeign, "InvalidClaim"},
		"has a volume that names nothing": {sourceNamed, "InvalidVolume"},
		"has an unseen real claim":        {sourceUnseen, told},
		"has another real claim":          {sourceOther, told},
		"waits for its own pod":           {sourceWaits, told},
		"loses its real claim":            {sourceEnds, told},
		"is a block volume":               {sourceBlock, "InvalidClaim"},
		"is larger":                       {sourceLarger, "InvalidClaim"},
	} {
		rows["nothing is made while the source "+name] = row{given: west(state.alter), verb: idle, tell: state.tell}
		rows["nothing is published while the source "+name] = row{given: with(west(state.alter), have("west", fromSource)), verb: idle,
			tell: state.tell}
	}
	check(t, rows)
}

// A remote backing claim whose class waits for a pod gets its volume after the virtual
// volume.
func TestACopyThatGotAnotherVolumeLaterIsTold(t *testing.T) {
	bound := boundTo("pvc-u1")
	check(t, map[string]row{
		"a copy": {given: []change{bound, have("west", fromSource, made, published), volume("west")}, verb: "Idle"},
		"a volume that was there": {given: []change{bound, have("west", fromSource, pvcBound, published), volume("west")}, verb: "Idle",
			tell: "SourceIgnored"},
		"no copy may have such a volume": {given: []change{bound, have("west", pvcBound, published), volume("west")}, verb: "Idle"},
		"what else there is to do is done": {
			given: []change{bound, have("west", fromSource, pvcBound, published), volume("west"), attributes("gold")}, verb: "Modify",
			cluster: "west", tell: "SourceIgnored"},
	})
}

// attributes sets the attributes class that the claim requests.
func attributes(name string) change {
	return func(o *steps.Observation) { o.Claim.Spec.VolumeAttributesClassName = &name }
}

func TestACopyNamesTheBackingClaimOfItsSource(t *testing.T) {
	step := decide.Next(observe(on("node-1"), copyIn(keys.Home)))
	assert.Equal(t, types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-s1"}, routeOf(step).Source)
	step = decide.Next(observe(on("west-1"), annotated(keys.Routed, "west"), copyIn("west")))
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "source"}, routeOf(step).Source)
	step = decide.Next(observe(on("node-1")))
	require.Equal(t, "Create", step.Verb())
	assert.Empty(t, routeOf(step).Source)
}

var twin = types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"}

// snapIn makes the claim one from shop/friday, a ready snapshot of 1 GiB with its data in a
// cluster, of the driver of all classes.
func snapIn(place string, alter ...func(*steps.Snapshot)) change {
	return func(o *steps.Observation) {
		o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind,
			Name: "friday"}
		o.Claim.Spec.Resources.Requests = gibibytes("1Gi")
		s := &steps.Snapshot{
			Object: &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "friday", UID: "f1"},
				Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("content-f1")}},
			Content: &volumesnapshot.Content{
				ObjectMeta: metav1.ObjectMeta{Name: "content-f1", UID: "c1"},
				Spec: volumesnapshot.ContentSpec{
					Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "friday", UID: "f1"}, DeletionPolicy: volumesnapshot.Delete, Driver: driver,
					SourceMode: ptr.To(corev1.PersistentVolumeFilesystem),
				},
				Status: volumesnapshot.ContentStatus{SnapshotHandle: ptr.To("handle-1"), ReadyToUse: ptr.To(true), RestoreSize: ptr.To[int64](1 << 30)},
			},
			At: twin,
		}
		if place != keys.Home {
			s.Content.Spec.Driver, s.Content.Status.SnapshotHandle = keys.Driver, ptr.To(place+"/shop/snapshot-c1/s1")
			s.There = &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1", UID: "s1",
				Annotations: map[string]string{keys.MadeBy: driver}}}
			s.Driver = driver
		}
		for _, a := range alter {
			a(s)
		}
		o.Source = &steps.Source{Snapshot: s}
		for _, id := range []string{keys.Home, "west", "east"} {
			driven(id, driver)(o)
		}
	}
}

// staged adds a ready stand-in for the claim's backing claim at home.
func staged(alter ...func(*steps.StandIn)) change {
	return func(o *steps.Observation) {
		of := &volumesnapshot.Content{Spec: volumesnapshot.ContentSpec{Driver: driver},
			Status: volumesnapshot.ContentStatus{SnapshotHandle: ptr.To("handle-1")}}
		snapshot, content := volumesnapshot.StandIn(of, twin, "u1", "h1")
		snapshot.UID, snapshot.Status = "s2", volumesnapshot.SnapshotStatus{ContentName: &content.Name, ReadyToUse: ptr.To(true)}
		content.Spec.Snapshot.UID = "s2"
		o.StandIn = steps.StandIn{Object: snapshot, Content: content}
		for _, a := range alter {
			a(&o.StandIn)
		}
	}
}

var ending = ptr.To(metav1.NewTime(now))

func apiUnknown(s *steps.Snapshot)   { *s = steps.Snapshot{Unknown: true} }
func apiAbsent(s *steps.Snapshot)    { *s = steps.Snapshot{Absent: true} }
func snapGone(s *steps.Snapshot)     { s.Object, s.Content, s.There = nil, nil, nil }
func snapGoing(s *steps.Snapshot)    { s.Object.DeletionTimestamp = ending }
func snapUntaken(s *steps.Snapshot)  { s.Object.Status.ContentName, s.Content, s.There = nil, nil, nil }
func snapThief(s *steps.Snapshot)    { s.Content.Spec.Snapshot.UID = "victim" }
func contentGoing(s *steps.Snapshot) { s.Content.DeletionTimestamp = ending }
func snapUnready(s *steps.Snapshot)  { s.Content.Status.ReadyToUse = ptr.To(false) }
func snapNameless(s *steps.Snapshot) { s.Content.Status.SnapshotHandle = nil }
func snapLarger(s *steps.Snapshot)   { s.Content.Status.RestoreSize = ptr.To[int64](1<<30 + 1) }
func snapBlock(s *steps.Snapshot)    { s.Content.Spec.SourceMode = ptr.To(corev1.PersistentVolumeBlock) }
func snapFree(s *steps.Snapshot) {
	s.Content.Annotations = map[string]string{volumesnapshot.AllowModeChange: "true"}
}
func thereUnseen(s *steps.Snapshot) { s.There = nil }
func thereOther(s *steps.Snapshot) {
	if s.There != nil {
		s.There.UID = "later"
	}
}
func thereGoing(s *steps.Snapshot) {
	if s.There != nil {
		s.There.DeletionTimestamp = ending
	}
}
func thereUnknown(s *steps.Snapshot) { s.Driver = "" }
func groupUnseen(s *steps.Snapshot) {
	s.Content.Annotations, s.Driver = map[string]string{volumesnapshot.MemberOf: "west/shop/groupsnapshot-g1/g2"}, ""
}
func snapOfOther(s *steps.Snapshot) { s.Content.Spec.Driver = "other.csi.dev" }
func snapNonsense(s *steps.Snapshot) {
	s.Content.Spec.Driver, s.Content.Status.SnapshotHandle = keys.Driver, ptr.To("nonsense")
}
func snapForHome(s *steps.Snapshot) {
	s.Content.Spec.Driver, s.Content.Status.SnapshotHandle = keys.Driver, ptr.To("home/shop/a/b")
}
func standInGone(in *steps.StandIn)   { *in = steps.StandIn{} }
func standInAlone(in *steps.StandIn)  { in.Object = nil }
func standInGoing(in *steps.StandIn)  { in.Object.DeletionTimestamp = ending }
func standInEnds(in *steps.StandIn)   { in.Object = nil; in.Content.DeletionTimestamp = ending }
func standInWaits(in *steps.StandIn)  { in.Object.Status.ReadyToUse = nil }
func standInOthers(in *steps.StandIn) { in.Content.Spec.Source.SnapshotHandle = ptr.To("handle-0") }

// fromSnap makes a backing claim one that is created from the snapshot.
func fromSnap(b *steps.Backing) {
	name := "snapshot-c1"
	if b.Cluster == keys.Home {
		name = twin.Name
	}
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: name}
}

func TestNextOfAClaimFromASnapshot(t *testing.T) {
	const idle, told = "Idle", "SnapshotNotReady"
	home := func(more ...change) []change { return append([]change{on("node-1"), snapIn(keys.Home)}, more...) }
	west := func(alter ...func(*steps.Snapshot)) []change {
		return []change{on("west-1"), annotated(keys.Routed, "west"), snapIn("west", alter...)}
	}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	rows := map[string]row{
		"at home a stand-in is made first":         {given: home(), verb: "Stage", cluster: keys.Home},
		"… and the rest of one":                    {given: home(staged(standInAlone)), verb: "Stage", cluster: keys.Home},
		"… and waited for":                         {given: home(staged(standInWaits)), verb: idle, after: true, tell: told},
		"… and made again when an old one is gone": {given: home(staged(standInGoing)), verb: idle, after: true},
		"… and replaced if it has other data":      {given: home(staged(standInOthers)), verb: "Unstage", cluster: keys.Home},
		"then the twin is made":                    {given: home(staged()), verb: "Create", cluster: keys.Home},
		"a twin that is on its way is waited for":  {given: home(staged(), have(keys.Home, fromSnap)), verb: idle, after: true},
		"a twin that is on its way gets its stand-in back": {
			given: home(have(keys.Home, fromSnap)), verb: "Stage", cluster: keys.Home},
		"a twin that is made from other data is made anew": {given: home(staged(standInOthers), have(keys.Home, fromSnap)), verb: "Remove",
			cluster: keys.Home},
		"a complete twin is published": {given: home(staged(), have(keys.Home, fromSnap, made)), verb: "Publish", cluster: keys.Home},
		"… without its snapshot, too": {
			given: []change{on("node-1"), snapIn(keys.Home, snapGone), have(keys.Home, fromSnap, made)}, verb: "Publish", cluster: keys.Home},
		"a twin whose source was dropped goes, and the place is refused": {
			given: home(staged(), have(keys.Home)), verb: "Remove", cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"an empty volume goes, and the place is refused": {
			given: home(staged(), have(keys.Home, fromSnap, emptyMade)), verb: "Remove", cluster: keys.Home, tell: "SourceIgnored",
			refuse: "home/ SourceIgnored"},
		"a shadow is made from the snapshot there": {given: west(), verb: "Create", cluster: "west"},
		"… and published once it is admitted":      {given: with(west(), have("west", fromSnap)), verb: "Publish", cluster: keys.Home},
		"a snapshot elsewhere sends the claim away": {given: []change{on("node-1"), snapIn("west")}, verb: "Reschedule", cluster: keys.Home,
			tell: "SourceElsewhere", refuse: "home/ SourceElsewhere"},
		"a snapshot at home sends it home": {given: []change{on("west-1"), snapIn(keys.Home)}, verb: "Reschedule", cluster: keys.Home,
			tell: "SourceElsewhere", refuse: "west/ SourceElsewhere"},
		"a class of another driver is refused": {
			given: []change{on("node-1"), snapIn(keys.Home, snapOfOther)}, verb: "Reschedule", cluster: keys.Home, tell: "SourceOfAnotherDriver",
			refuse: "home/ SourceOfAnotherDriver"},
		"… and where nobody knows which one took the snapshot": {
			given: west(thereUnknown), verb: "Reschedule", cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "west/ SourceOfAnotherDriver"},
		"an administrator may allow another mode at home": {given: []change{on("node-1"), snapIn(keys.Home, snapBlock, snapFree)}, verb: "Stage",
			cluster: keys.Home},
		"… but not elsewhere":                            {given: west(snapBlock, snapFree), verb: idle, tell: "InvalidClaim"},
		"it is said before a node is chosen where to go": {given: []change{snapIn("west")}, verb: "Locate", cluster: keys.Home},
		"… once": {given: []change{snapIn("west"), annotated(keys.SourceCluster, "west")}, verb: idle},
		"… and taken back if it is wrong": {given: []change{snapIn("west", snapGone), annotated(keys.SourceCluster, "west")}, verb: "Locate",
			cluster: keys.Home, tell: told},
		"… but not while nothing is known": {
			given: []change{snapIn("west", apiUnknown), annotated(keys.SourceCluster, "west")}, verb: idle},
		"the stand-in of a claim that is gone goes": {given: []change{staged(), noClaim}, verb: "Unstage", cluster: keys.Home},
		"… the content once the snapshot is gone": {given: []change{staged(standInAlone), noClaim}, verb: "Unstage",
			cluster: keys.Home},
		"… and both are waited for": {given: []change{staged(standInGoing), noClaim}, verb: idle},
		"… to the end":              {given: []change{staged(standInEnds), noClaim}, verb: idle},
		"that of a claim without a node goes": {given: []change{snapIn(keys.Home), annotated(keys.SourceCluster, keys.Home),
			staged()}, verb: "Unstage", cluster: keys.Home},
		"that of a claim that has its volume goes": {given: []change{boundTo("pvc-u1"), have(keys.Home, fromSnap, made, published),
			volume(keys.Home), staged()}, verb: "Unstage", cluster: keys.Home},
		"that of a claim that is in the way elsewhere stays": {given: home(staged(standInWaits), func(o *steps.Observation) {
			o.Source.Snapshot.Content.Status.ReadyToUse = nil
		}), verb: idle, tell: told},
	}
	for name, state := range map[string]struct {
		alter func(*steps.Snapshot)
		tell  string
	}{
		"is not known to exist":          {apiUnknown, ""},
		"is of an API that is not there": {apiAbsent, told},
		"does not exist":                 {snapGone, told},
		"is being deleted":               {snapGoing, told},
		"has not been taken":             {snapUntaken, told},
		"names the content of another":   {snapThief, "InvalidSnapshot"},
		"has a content that goes":        {contentGoing, told},
		"is not ready":                   {snapUnready, told},
		"has no handle":                  {snapNameless, told},
		"has a handle that is none":      {snapNonsense, "InvalidSnapshot"},
		"has one of our driver at home":  {snapForHome, "InvalidSnapshot"},
		"is larger":                      {snapLarger, "InvalidClaim"},
		"is of a block volume":           {snapBlock, "InvalidClaim"},
		"is not seen there":              {thereUnseen, told},
		"is another there":               {thereOther, "InvalidSnapshot"},
		"is being deleted there":         {thereGoing, told},
		"was taken with others, unseen":  {groupUnseen, told},
	} {
		rows["nothing is made while the snapshot "+name] = row{given: west(state.alter), verb: idle, tell: state.tell}
		rows["nothing is published while the snapshot "+name] = row{given: with(west(state.alter), have("west", fromSnap)), verb: idle,
			tell: state.tell}
	}
	check(t, rows)
}

func TestAClaimFromASnapshotNamesIt(t *testing.T) {
	step := decide.Next(observe(on("node-1"), snapIn(keys.Home), staged()))
	assert.Equal(t, twin, routeOf(step).Source)
	assert.True(t, routeOf(step).FromSnapshot)
	step = decide.Next(observe(on("west-1"), annotated(keys.Routed, "west"), snapIn("west")))
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "snapshot-c1"}, routeOf(step).Source)
	assert.Equal(t, "west", as[steps.RecordSource](decide.Next(observe(snapIn("west")))).In)
	assert.Equal(t, keys.Home, as[steps.RecordSource](decide.Next(observe(snapIn(keys.Home)))).In)
	assert.Empty(t, as[steps.RecordSource](decide.Next(observe(snapIn("west", snapThief), annotated(keys.SourceCluster, "west")))).In)
}
