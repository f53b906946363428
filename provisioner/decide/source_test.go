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
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

const driver = "disk.csi.dev"

// copyIn makes the claim a copy of shop/source, whose data is in a cluster: bound,
// 1 GiB, of the driver of all classes.
func copyIn(place string, alter ...func(*decide.Source)) change {
	return func(o *decide.Observation) {
		o.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		o.Claim.Spec.Resources.Requests = gibibytes("1Gi")
		backing := types.NamespacedName{Namespace: "shop", Name: "source"}
		if place == keys.Home {
			backing = types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-s1"}
		}
		s := &decide.Source{
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "source", UID: "s1", Annotations: map[string]string{}}},
			Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-s1", Annotations: map[string]string{
				keys.Backing: place + "/" + backing.String() + "/b-source"}}},
			Backings: []decide.Backing{{
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

// driven has all classes of a cluster made by one driver.
func driven(id, by string) change {
	return cluster(id, func(c *decide.Cluster) {
		offered := append([]v1alpha1.OfferedClass(nil), c.Offered...)
		for i := range offered {
			offered[i].Provisioner = by
		}
		c.Offered = offered
	})
}

// fromSource makes a backing claim a copy, fromGone of a source that is gone.
func fromSource(b *decide.Backing) {
	name := "source"
	if b.Cluster == keys.Home {
		name = "pvc-s1"
	}
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
}

func fromGone(b *decide.Backing) {
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "pvc-s0"}
}

// made has the volume of a backing claim made for it by the driver.
func made(b *decide.Backing) {
	pvcBound(b)
	b.Volume.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": driver}
	b.Volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
}

func emptyMade(b *decide.Backing)    { made(b); b.Volume.Spec.CSI = nil }
func sourceGone(s *decide.Source)    { *s = decide.Source{} }
func sourceGoing(s *decide.Source)   { s.Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
func sourceForeign(s *decide.Source) { s.Foreign, s.Volume, s.Backings = true, nil, nil }
func sourceUnbound(s *decide.Source) { s.Volume, s.Backings = nil, nil }
func sourceMoving(s *decide.Source)  { s.Claim.Annotations[keys.Move] = "m1" }
func sourceUnseen(s *decide.Source)  { s.Backings = nil }
func sourceOther(s *decide.Source)   { s.Backings[0].Claim.UID = "b-later" }
func sourceWaits(s *decide.Source) {
	s.Backings[0].Claim.Status.Phase, s.Backings[0].Volume = corev1.ClaimPending, nil
}
func sourceEnds(s *decide.Source) {
	s.Backings[0].Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now))
}
func sourcePlain(s *decide.Source) { s.Backings[0].Volume.Spec.CSI = nil }
func sourceBlock(s *decide.Source) {
	s.Backings[0].Claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}
func sourceLarger(s *decide.Source) {
	s.Backings[0].Claim.Spec.Resources.Requests = gibibytes("1025Mi")
}
func sourceNamed(s *decide.Source) { s.Volume.Annotations[keys.Backing] = "nonsense" }

func TestNextOfACopy(t *testing.T) {
	const idle, told = decide.Idle, "SourceNotBound"
	home, west := func(alter ...func(*decide.Source)) []change {
		return []change{on("node-1"), copyIn(keys.Home, alter...)}
	},
		func(alter ...func(*decide.Source)) []change {
			return []change{on("west-1"), annotated(keys.Routed, "west"), copyIn("west", alter...)}
		}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	rows := map[string]row{
		"a copy at home is made at once":          {given: home(), verb: decide.Create, cluster: keys.Home},
		"a copy in a remote cluster is made":      {given: west(), verb: decide.Create, cluster: "west"},
		"a source elsewhere sends the claim away": {given: []change{on("node-1"), copyIn("west")}, verb: decide.Reschedule, cluster: keys.Home, tell: "SourceElsewhere", refuse: "home/ SourceElsewhere"},
		"… after what was made for it": {
			given: []change{on("node-1"), copyIn("west"), have(keys.Home, fromGone)}, verb: decide.Remove, cluster: keys.Home},
		"a class of another driver is refused": {
			given: with(home(), driven(keys.Home, "other.csi.dev")), verb: decide.Reschedule, cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "home/ SourceOfAnotherDriver"},
		"a source that no driver made is refused, for its copy would be empty": {
			given: west(sourcePlain), verb: decide.Reschedule, cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "west/ SourceOfAnotherDriver"},
		"hand-made volumes are copies of nothing": {
			given: with(home(), cluster(keys.Home, func(c *decide.Cluster) {
				c.Offered = []v1alpha1.OfferedClass{{Name: "nfs", Default: true, Static: true, Provisioner: "kubernetes.io/no-provisioner", BindingMode: storagev1.VolumeBindingImmediate}}
			})), verb: decide.Reschedule, cluster: keys.Home, tell: "SourceOfAnotherDriver", refuse: "home/ SourceOfAnotherDriver"},
		"a provisioner that may have another name is asked": {given: with(home(), driven(keys.Home, "kubernetes.io/disk")), verb: decide.Create, cluster: keys.Home},
		"a complete copy needs no source any more":          {given: with(home(sourceGone), have(keys.Home, fromSource, made)), verb: decide.Publish, cluster: keys.Home},
		"a complete copy of what was moved since is one":    {given: []change{on("node-1"), copyIn("west"), have(keys.Home, fromSource, made)}, verb: decide.Publish, cluster: keys.Home},
		"a copy that is on its way is waited for":           {given: with(home(), have(keys.Home, fromSource)), verb: idle, after: true},
		"a copy there is published once it is admitted":     {given: with(west(), have("west", fromSource)), verb: decide.Publish, cluster: keys.Home},
		"… but not while its source is gone, for no pod could ever start": {
			given: with(west(sourceGone), have("west", fromSource)), verb: idle, tell: told},
		"a copy of a source that was made anew is made anew": {given: with(home(), have(keys.Home, fromGone)), verb: decide.Remove, cluster: keys.Home},
		"a copy whose source was dropped goes, and the place is refused": {
			given: with(home(), have(keys.Home)), verb: decide.Remove, cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"an empty volume goes, and the place is refused": {
			given: with(home(), have(keys.Home, fromSource, emptyMade)), verb: decide.Remove, cluster: keys.Home, tell: "SourceIgnored", refuse: "home/ SourceIgnored"},
		"a volume that was there before is no copy, and is left alone": {
			given: with(home(), have(keys.Home, fromSource, pvcBound)), verb: idle, tell: "SourceIgnored"},
		"a copy that nobody makes any more goes, or it would hold its source": {
			given: with(home(sourceGoing), have(keys.Home, fromSource, dropped)), verb: decide.Remove, cluster: keys.Home, tell: "NoCapacity", refuse: "home/node-1 NoCapacity"},
		"… also when its source is gone": {
			given: with(home(sourceGone), have(keys.Home, fromSource, dropped)), verb: decide.Remove, cluster: keys.Home, tell: "NoCapacity", refuse: "home/node-1 NoCapacity"},
		"a copy that may still be made is waited for while its source goes": {
			given: with(home(sourceGoing), have(keys.Home, fromSource)), verb: idle, tell: told},
		"a claim whose attributes class was dropped goes, and the place is refused": {
			given: []change{on("node-1"), have(keys.Home), attributes("gold")}, verb: decide.Remove, cluster: keys.Home, tell: "AttributesIgnored", refuse: "home/ AttributesIgnored"},
	}
	for name, state := range map[string]struct {
		alter func(*decide.Source)
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
		rows["nothing is published while the source "+name] = row{given: with(west(state.alter), have("west", fromSource)), verb: idle, tell: state.tell}
	}
	check(t, rows)
}

// A shadow whose class waits for a pod gets its volume after the virtual one.
func TestACopyThatGotAnotherVolumeLaterIsTold(t *testing.T) {
	bound := boundTo("pvc-u1")
	check(t, map[string]row{
		"a copy":                         {given: []change{bound, have("west", fromSource, made, published), volume("west")}, verb: decide.Idle},
		"a volume that was there":        {given: []change{bound, have("west", fromSource, pvcBound, published), volume("west")}, verb: decide.Idle, tell: "SourceIgnored"},
		"no copy may have such a volume": {given: []change{bound, have("west", pvcBound, published), volume("west")}, verb: decide.Idle},
		"what else there is to do is done": {
			given: []change{bound, have("west", fromSource, pvcBound, published), volume("west"), attributes("gold")}, verb: decide.Modify, cluster: "west", tell: "SourceIgnored"},
	})
}

// attributes has the claim ask for an attributes class.
func attributes(name string) change {
	return func(o *decide.Observation) { o.Claim.Spec.VolumeAttributesClassName = &name }
}

func TestACopyNamesTheBackingClaimOfItsSource(t *testing.T) {
	step := decide.Next(observe(on("node-1"), copyIn(keys.Home)))
	assert.Equal(t, types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-s1"}, step.Route.Source)
	step = decide.Next(observe(on("west-1"), annotated(keys.Routed, "west"), copyIn("west")))
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "source"}, step.Route.Source)
	step = decide.Next(observe(on("node-1")))
	require.Equal(t, decide.Create, step.Verb)
	assert.Empty(t, step.Route.Source)
}
