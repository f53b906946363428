package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

var twin = types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"}

// snapIn has the claim made from shop/friday, a snapshot that is ready, of 1 GiB,
// whose data is in a cluster, of the driver of all classes.
func snapIn(place string, alter ...func(*decide.Snapshot)) change {
	return func(o *decide.Observation) {
		o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: "friday"}
		o.Claim.Spec.Resources.Requests = gibibytes("1Gi")
		s := &decide.Snapshot{
			Object: &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "friday", UID: "f1"}, Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("content-f1")}},
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
			s.There = &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1", UID: "s1", Annotations: map[string]string{keys.MadeBy: driver}}}
		}
		for _, a := range alter {
			a(s)
		}
		o.Source = &decide.Source{Snapshot: s}
		for _, id := range []string{keys.Home, "west", "east"} {
			driven(id, driver)(o)
		}
	}
}

// staged gives the claim's twin a stand-in that is ready.
func staged(alter ...func(*decide.StandIn)) change {
	return func(o *decide.Observation) {
		of := &volumesnapshot.Content{Spec: volumesnapshot.ContentSpec{Driver: driver}, Status: volumesnapshot.ContentStatus{SnapshotHandle: ptr.To("handle-1")}}
		snapshot, content := volumesnapshot.StandIn(of, twin, "u1", "h1")
		snapshot.UID, snapshot.Status = "s2", volumesnapshot.SnapshotStatus{ContentName: &content.Name, ReadyToUse: ptr.To(true)}
		content.Spec.Snapshot.UID = "s2"
		o.StandIn = decide.StandIn{Object: snapshot, Content: content}
		for _, a := range alter {
			a(&o.StandIn)
		}
	}
}

var ending = ptr.To(metav1.NewTime(now))

func apiUnknown(s *decide.Snapshot)   { *s = decide.Snapshot{Unknown: true} }
func apiAbsent(s *decide.Snapshot)    { *s = decide.Snapshot{Absent: true} }
func snapGone(s *decide.Snapshot)     { s.Object, s.Content, s.There = nil, nil, nil }
func snapGoing(s *decide.Snapshot)    { s.Object.DeletionTimestamp = ending }
func snapUntaken(s *decide.Snapshot)  { s.Object.Status.ContentName, s.Content, s.There = nil, nil, nil }
func snapThief(s *decide.Snapshot)    { s.Content.Spec.Snapshot.UID = "victim" }
func contentGoing(s *decide.Snapshot) { s.Content.DeletionTimestamp = ending }
func snapUnready(s *decide.Snapshot)  { s.Content.Status.ReadyToUse = ptr.To(false) }
func snapNameless(s *decide.Snapshot) { s.Content.Status.SnapshotHandle = nil }
func snapLarger(s *decide.Snapshot)   { s.Content.Status.RestoreSize = ptr.To[int64](1<<30 + 1) }
func snapBlock(s *decide.Snapshot)    { s.Content.Spec.SourceMode = ptr.To(corev1.PersistentVolumeBlock) }
func snapFree(s *decide.Snapshot) {
	s.Content.Annotations = map[string]string{volumesnapshot.AllowModeChange: "true"}
}
func thereUnseen(s *decide.Snapshot) { s.There = nil }
func thereOther(s *decide.Snapshot) {
	if s.There != nil {
		s.There.UID = "later"
	}
}
func thereGoing(s *decide.Snapshot) {
	if s.There != nil {
		s.There.DeletionTimestamp = ending
	}
}
func thereUnknown(s *decide.Snapshot) {
	if s.There != nil {
		s.There.Annotations = nil
	}
}
func snapOfOther(s *decide.Snapshot) { s.Content.Spec.Driver = "other.csi.dev" }
func snapNonsense(s *decide.Snapshot) {
	s.Content.Spec.Driver, s.Content.Status.SnapshotHandle = keys.Driver, ptr.To("nonsense")
}
func snapForHome(s *decide.Snapshot) {
	s.Content.Spec.Driver, s.Content.Status.SnapshotHandle = keys.Driver, ptr.To("home/shop/a/b")
}
func standInGone(in *decide.StandIn)   { *in = decide.StandIn{} }
func standInAlone(in *decide.StandIn)  { in.Object = nil }
func standInGoing(in *decide.StandIn)  { in.Object.DeletionTimestamp = ending }
func standInEnds(in *decide.StandIn)   { in.Object = nil; in.Content.DeletionTimestamp = ending }
func standInWaits(in *decide.StandIn)  { in.Object.Status.ReadyToUse = nil }
func standInOthers(in *decide.StandIn) { in.Content.Spec.Source.SnapshotHandle = ptr.To("handle-0") }

// fromSnap makes a backing claim one that is made from the snapshot.
func fromSnap(b *decide.Backing) {
	name := "snapshot-c1"
	if b.Cluster == keys.Home {
		name = twin.Name
	}
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: name}
}

func TestNextOfAClaimFromASnapshot(t *testing.T) {
	const idle, told = decide.Idle, "SnapshotNotReady"
	home := func(more ...change) []change { return append([]change{on("node-1"), snapIn(keys.Home)}, more...) }
	west := func(alter ...func(*decide.Snapshot)) []change {
		return []change{on("west-1"), annotated(keys.Routed, "west"), snapIn("west", alter...)}
	}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	rows := map[string]row{
		"at home a stand-in is made first":         {given: home(), verb: decide.Stage, cluster: keys.Home},
		"… and the rest of one":                    {given: home(staged(standInAlone)), verb: decide.Stage, cluster: keys.Home},
		"… and waited for":                         {given: home(staged(standInWaits)), verb: idle, after: true, tell: told},
		"… and made again when an old one is gone": {given: home(staged(standInGoing)), verb: idle, after: true},
		"… and replaced if it has other data":      {given: home(staged(standInOthers)), verb: decide.Unstage, cluster: keys.Home},
		"then the twin is made":                    {given: home(staged()), verb: decide.Create, cluster: keys.Home},
		"a twin that is on its way is waited for":  {given: home(staged(), have(keys.Home, fromSnap)), verb: idle, after: true},
		"a twin that is on its way gets its stand-in back": {
			given: home(have(keys.Home, fromSnap)), verb: decide.Stage, cluster: keys.Home},
		"a twin that is made from other data is made anew": {given: home(staged(standInOthers), have(keys.Home, fromSnap)), verb: decide.Remove, cluster: keys.Home},
		"a complete twin is published":                     {given: home(staged(), have(keys.Home, fromSnap, made)), verb: decide.Publish, cluster: keys.Home},
		"… without its snapshot, too": {
			given: []change{on("node-1"), snapIn(keys.Home, snapGone), have(keys.Home, fromSnap, made)}, verb: decide.Publish, cluster: keys.Home},
		"a twin whose source was dropped goes, and the place is refused": {
			given: home(staged(), have(keys.Home)), verb: decide.Remove, cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"an empty volume goes, and the place is refused": {
			given: home(staged(), have(keys.Home, fromSnap, emptyMade)), verb: decide.Remove, cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"a shadow is made from the snapshot there":  {given: west(), verb: decide.Create, cluster: "west"},
		"… and published once it is admitted":       {given: with(west(), have("west", fromSnap)), verb: decide.Publish, cluster: keys.Home},
		"a snapshot elsewhere sends the claim away": {given: []change{on("node-1"), snapIn("west")}, verb: decide.Reschedule, cluster: keys.Home, tell: "SourceElsewhere", refuse: "home/ SourceElsewhere"},
		"a snapshot at home sends it home":          {given: []change{on("west-1"), snapIn(keys.Home)}, verb: decide.Reschedule, cluster: keys.Home, tell: "SourceElsewhere", refuse: "west/ SourceElsewhere"},
		"a class of another driver is refused": {
			given: []change{on("node-1"), snapIn(keys.Home, snapOfOther)}, verb: decide.Reschedule, cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "home/ SourceOfAnotherDriver"},
		"… and where nobody knows which one took the snapshot": {
			given: west(thereUnknown), verb: decide.Reschedule, cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "west/ SourceOfAnotherDriver"},
		"an administrator may allow another mode at home": {given: []change{on("node-1"), snapIn(keys.Home, snapBlock, snapFree)}, verb: decide.Stage, cluster: keys.Home},
		"… but not elsewhere":                             {given: west(snapBlock, snapFree), verb: idle, tell: "InvalidClaim"},
		"it is said before a node is chosen where to go":  {given: []change{snapIn("west")}, verb: decide.Locate, cluster: keys.Home},
		"… once":                          {given: []change{snapIn("west"), annotated(keys.SourceCluster, "west")}, verb: idle},
		"… and taken back if it is wrong": {given: []change{snapIn("west", snapGone), annotated(keys.SourceCluster, "west")}, verb: decide.Locate, cluster: keys.Home, tell: told},
		"… but not while nothing is known": {
			given: []change{snapIn("west", apiUnknown), annotated(keys.SourceCluster, "west")}, verb: idle},
		"the stand-in of a claim that is gone goes":          {given: []change{staged(), noClaim}, verb: decide.Unstage, cluster: keys.Home},
		"… the content once the snapshot is gone":            {given: []change{staged(standInAlone), noClaim}, verb: decide.Unstage, cluster: keys.Home},
		"… and both are waited for":                          {given: []change{staged(standInGoing), noClaim}, verb: idle},
		"… to the end":                                       {given: []change{staged(standInEnds), noClaim}, verb: idle},
		"that of a claim without a node goes":                {given: []change{snapIn(keys.Home), annotated(keys.SourceCluster, keys.Home), staged()}, verb: decide.Unstage, cluster: keys.Home},
		"that of a claim that has its volume goes":           {given: []change{boundTo("pvc-u1"), have(keys.Home, fromSnap, made, published), volume(keys.Home), staged()}, verb: decide.Unstage, cluster: keys.Home},
		"that of a claim that is in the way elsewhere stays": {given: home(staged(standInWaits), func(o *decide.Observation) { o.Source.Snapshot.Content.Status.ReadyToUse = nil }), verb: idle, tell: told},
	}
	for name, state := range map[string]struct {
		alter func(*decide.Snapshot)
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
	} {
		rows["nothing is made while the snapshot "+name] = row{given: west(state.alter), verb: idle, tell: state.tell}
		rows["nothing is published while the snapshot "+name] = row{given: with(west(state.alter), have("west", fromSnap)), verb: idle, tell: state.tell}
	}
	check(t, rows)
}

func TestAClaimFromASnapshotNamesIt(t *testing.T) {
	step := decide.Next(observe(on("node-1"), snapIn(keys.Home), staged()))
	assert.Equal(t, twin, step.Route.Source)
	assert.True(t, step.Route.FromSnapshot)
	step = decide.Next(observe(on("west-1"), annotated(keys.Routed, "west"), snapIn("west")))
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "snapshot-c1"}, step.Route.Source)
	assert.Equal(t, "west", decide.Next(observe(snapIn("west"))).Located)
	assert.Equal(t, keys.Home, decide.Next(observe(snapIn(keys.Home))).Located)
	assert.Empty(t, decide.Next(observe(snapIn("west", snapThief), annotated(keys.SourceCluster, "west"))).Located)
}
