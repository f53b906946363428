package status

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// virtual is the virtual class of these tests, ordinary one of another provisioner.
var (
	virtual  = storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver}
	ordinary = storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Provisioner: "example.com/disk"}
)

func claimOf(namespace, name, class string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
}

func volumeOf(name, cluster string, claim *corev1.PersistentVolumeClaim) corev1.PersistentVolume {
	volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: "lodestone", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	if cluster != "" {
		volume.Annotations = map[string]string{keys.Backing: cluster + "/ns/claim/uid"}
	}
	return volume
}

func TestEachVolumeIsShownWhereItsDataIs(t *testing.T) {
	bound, pending := claimOf("shop", "data", "lodestone", corev1.ClaimBound), claimOf("shop", "new", "lodestone", corev1.ClaimPending)
	plain, going := claimOf("shop", "plain", "standard", corev1.ClaimBound), claimOf("bank", "old", "lodestone", corev1.ClaimBound)
	going.DeletionTimestamp = &metav1.Time{Time: now}
	bound.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue,
		Message: "the real claim\nis gone"}}
	kept, lost := volumeOf("kept", "east", &bound), volumeOf("lost", "east", &going)
	kept.Spec.ClaimRef.UID, kept.Status.Phase = "of the claim before", corev1.VolumeReleased
	lost.Annotations[keys.Lost] = "2026-01-01T00:00:00Z"
	f := facts{classes: []storagev1.StorageClass{virtual, ordinary},
		claims:  []corev1.PersistentVolumeClaim{pending, plain, bound, going},
		volumes: []corev1.PersistentVolume{volumeOf("v", "west", &bound), kept, lost, volumeOf("plain", "", &plain)}}
	one, two := resource.MustParse("1Gi"), resource.MustParse("2Gi")
	all := []Volume{
		{Namespace: "bank", Claim: "old", Name: "lost", Phase: "Terminating", Cluster: "east", Class: "lodestone", Size: two, DeclaredLost: true},
		{Namespace: "shop", Claim: "data", Name: "kept", Phase: "Released", Cluster: "east", Class: "lodestone", Size: two},
		{Namespace: "shop", Claim: "data", Name: "v", Phase: "Bound", Cluster: "west", Class: "lodestone", Size: two,
			Trouble: "the real claim is gone"},
		{Namespace: "shop", Claim: "new", Phase: "Pending", Class: "lodestone", Size: one},
	}
	assert.Equal(t, all, f.shownVolumes(only{}))
	assert.Equal(t, all[:1], f.shownVolumes(only{namespace: "bank"}))

	f.volumes = nil
	assert.Equal(t, []string{"old", "data", "new"}, names(f.shownVolumes(only{})), "volumes that cannot be read")
	assert.Empty(t, f.shownVolumes(only{})[1].Cluster)
	f.claims, f.volumes = nil, []corev1.PersistentVolume{volumeOf("v", "west", &bound)}
	assert.Equal(t, []string{"data"}, names(f.shownVolumes(only{})), "claims that cannot be read")
}

func names(volumes []Volume) (claims []string) {
	for _, volume := range volumes {
		claims = append(claims, volume.Claim)
	}
	return claims
}

func TestPodsOfVirtualVolumesAndOfRemoteClustersAreShown(t *testing.T) {
	on := func(name, node string, phase corev1.PodPhase, claims ...string) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
		for _, claim := range claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
		return pod
	}
	ephemeral := on("scratch-0", "", corev1.PodPending)
	ephemeral.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	ending := on("ending", "west", corev1.PodRunning)
	ending.DeletionTimestamp = &metav1.Time{Time: now}
	f := world(t)
	f.classes = []storagev1.StorageClass{virtual, ordinary}
	f.claims = []corev1.PersistentVolumeClaim{claimOf("shop", "data", "lodestone", corev1.ClaimBound),
		claimOf("shop", "plain", "standard", corev1.ClaimBound), claimOf("shop", "scratch-0-tmp", "lodestone", corev1.ClaimPending)}
	f.pods = []corev1.Pod{on("web", "home-1", corev1.PodRunning, "plain", "data"), on("other", "home-1", corev1.PodRunning, "plain"),
		on("far", "west", corev1.PodRunning), on("over", "home-1", corev1.PodSucceeded, "data"), ephemeral, ending}
	assert.Equal(t, []Pod{
		{Namespace: "shop", Name: "ending", Phase: "Terminating", Ready: true, Node: "west", Cluster: "west"},
		{Namespace: "shop", Name: "far", Phase: "Running", Ready: true, Node: "west", Cluster: "west"},
		{Namespace: "shop", Name: "scratch-0", Phase: "Pending", Ready: true, Claims: []string{"scratch-0-tmp"}},
		{Namespace: "shop", Name: "web", Phase: "Running", Ready: true, Node: "home-1", Cluster: "home", Claims: []string{"data"}},
	}, f.shownPods(only{}))
	assert.Empty(t, f.shownPods(only{namespace: "bank"}))
}

func TestMovesAreShownWithTheirStateAndProgress(t *testing.T) {
	accepted := func(status metav1.ConditionStatus, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.MoveAccepted, Status: status, Message: message}}
	}
	for name, test := range map[string]struct {
		spec   v1alpha1.MoveTarget
		status v1alpha1.VolumeMoveStatus
		want   Move
	}{
		"one that was just made": {spec: v1alpha1.MoveTarget{Cluster: "west"}, want: Move{Target: "west", State: Going}},
		"one to a node of home":  {spec: v1alpha1.MoveTarget{Node: "home-1"}, want: Move{Target: "home", State: Going}},
		"one to a node that nobody knows": {spec: v1alpha1.MoveTarget{Node: "gone"}, want: Move{Target: "node gone",
			State: Going}},
		"one that copies": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MovePreCopy,
			Claims: []v1alpha1.MovedClaim{{Source: &v1alpha1.MovePlace{Cluster: "home"}, Pass: 1, Bytes: 1, BytesTotal: 4, Rate: 2},
				{Pass: 2, Bytes: 2, BytesTotal: 8, Rate: 1}}},
			want: Move{Source: "home", Target: "west", State: Going, Phase: "PreCopy", Pass: 2, Bytes: 3, BytesTotal: 12, Rate: 3}},
		"one that is refused": {spec: v1alpha1.MoveTarget{Cluster: "mars"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveFailed,
			Conditions: accepted(metav1.ConditionFalse, "there is no mars"), Message: "failed"},
			want: Move{Target: "mars", State: Refused, Phase: "Failed", Message: "there is no mars"}},
		"one that failed": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveFailed,
			Conditions: accepted(metav1.ConditionTrue, ""), Message: "the copies differ"},
			want: Move{Target: "west", State: Failed, Phase: "Failed", Message: "the copies differ"}},
		"one that was aborted": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveAborted},
			want: Move{Target: "west", State: Aborted, Phase: "Aborted"}},
		"one whose source is kept": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveRetain,
			Downtime: &metav1.Duration{Duration: time.Second}},
			want: Move{Target: "west", State: Moved, Phase: "Retain", Downtime: &metav1.Duration{Duration: time.Second}}},
		"a dry run": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveChecked},
			want: Move{Target: "west", State: Checked, Phase: "Checked"}},
		"one whose message has no end": {spec: v1alpha1.MoveTarget{Cluster: "west"}, status: v1alpha1.VolumeMoveStatus{
			Message: "a" + strings.Repeat("\n", 5000)},
			want: Move{Target: "west", State: Going, Message: "a" + strings.Repeat(" ", longest-5) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := world(t)
			f.moves = []v1alpha1.VolumeMove{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m"},
				Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"data"}, Target: test.spec}, Status: test.status}}
			test.want.Namespace, test.want.Name, test.want.Claims = "shop", "m", []string{"data"}
			assert.Equal(t, []Move{test.want}, f.shownMoves(only{}))
			assert.Empty(t, f.shownMoves(only{namespace: "bank"}))
		})
	}
}

func TestClaimsOfVirtualClassesAreKnownWhereNoClassCanBeRead(t *testing.T) {
	made, other := claimOf("shop", "data", "lodestone", corev1.ClaimBound), claimOf("shop", "log", "disk", corev1.ClaimBound)
	made.Annotations = map[string]string{keys.StorageProvisioner: keys.Driver}
	other.Annotations = map[string]string{keys.StorageProvisioner: "disk.test"}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	f := facts{claims: []corev1.PersistentVolumeClaim{made, other}, pods: []corev1.Pod{pod}}
	volumes := f.shownVolumes(only{})
	require.Len(t, volumes, 1)
	assert.Equal(t, "data", volumes[0].Claim)
	assert.Equal(t, "lodestone", volumes[0].Class)
	assert.Equal(t, []string{"data"}, f.shownPods(only{})[0].Claims)
	require.Len(t, f.waiting(only{}), 1)
	assert.Equal(t, "db", f.waiting(only{})[0].pod.Name)
}

func TestHomeIsItsOwnNodesAndVirtualClasses(t *testing.T) {
	f := world(t)
	f.classes = []storagev1.StorageClass{ordinary, virtual}
	f.nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f.nodes = append(f.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-2"}})
	assert.Equal(t, Home{Nodes: 2, ReadyNodes: 1, VirtualClasses: []string{"lodestone"}}, f.home())
}

func TestClustersThatCannotBeReadAreThoseThatVolumesName(t *testing.T) {
	s := Status{Volumes: []Volume{{Cluster: "west"}, {Cluster: "home"}, {}, {Cluster: "east"}}, Pods: []Pod{{Cluster: "west"}}}
	s.addUnknown(false)
	assert.Empty(t, s.Clusters)
	s.addUnknown(true)
	assert.Len(t, s.Clusters, 2)
	assert.Equal(t, "east", s.Clusters[0].Name)
	assert.Equal(t, "you may not read its RemoteCluster", s.Clusters[1].Message)
}

func TestWhatNoLongerWaitsIsNotSaidToWait(t *testing.T) {
	pending := claimOf("shop", "new", "lodestone", corev1.ClaimPending)
	read := Status{Omitted: 3, Waiting: []Waiting{{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "new", Why: "no room"},
		{Kind: "Pod", Namespace: "shop", Name: "new", Why: "it has no node"}}}
	list, omitted := stillWaiting([]waits{{claim: &pending}}, read)
	assert.Equal(t, read.Waiting[:1], list)
	assert.Zero(t, omitted)
}

func TestWhatWaitsIsAlwaysInTheSameOrder(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"}}}}}}
	f := facts{classes: []storagev1.StorageClass{virtual}, pods: []corev1.Pod{pod},
		claims: []corev1.PersistentVolumeClaim{claimOf("shop", "new", "lodestone", corev1.ClaimPending),
			claimOf("bank", "z", "lodestone", corev1.ClaimPending), claimOf("shop", "done", "lodestone", corev1.ClaimBound)}}
	var order []string
	for _, w := range f.waiting(only{}) {
		order = append(order, w.unexplained().Namespace+"/"+w.unexplained().Name)
	}
	assert.Equal(t, []string{"bank/z", "shop/new", "shop/a"}, order)
	assert.Len(t, f.waiting(only{namespace: "bank"}), 1)

	f.claims[2].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue}}
	assert.Len(t, f.waiting(only{}), 4, "something is wrong with the volume of a claim that is bound")
	f.claims[2].Status.Conditions = nil

	deleted := volumeOf("v", "west", &f.claims[2])
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	f.claims[2].Spec.VolumeName, f.volumes = "v", []corev1.PersistentVolume{deleted}
	assert.Len(t, f.waiting(only{}), 4, "somebody deleted the volume of a claim that is bound")
}

func TestWhatIsShownCanBeChosenByLabels(t *testing.T) {
	labelled := func(meta *metav1.ObjectMeta) { meta.Labels = map[string]string{"app": "shop"} }
	bound, pending := claimOf("shop", "data", "lodestone", corev1.ClaimBound), claimOf("shop", "new", "lodestone", corev1.ClaimPending)
	labelled(&bound.ObjectMeta)
	labelled(&pending.ObjectMeta)
	web := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"}}}}}}
	other := *web.DeepCopy()
	other.Name = "other"
	labelled(&web.ObjectMeta)
	move := v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-x"}}
	f := facts{classes: []storagev1.StorageClass{virtual}, pods: []corev1.Pod{web, other}, moves: []v1alpha1.VolumeMove{move},
		claims:  []corev1.PersistentVolumeClaim{bound, pending, claimOf("shop", "plain", "lodestone", corev1.ClaimPending)},
		volumes: []corev1.PersistentVolume{volumeOf("v", "west", &bound)}}
	selector, err := labels.Parse("app=shop")
	require.NoError(t, err)
	show := only{labels: selector}
	assert.Equal(t, []string{"data", "new"}, names(f.shownVolumes(show)))
	require.Len(t, f.shownPods(show), 1)
	assert.Equal(t, []string{"new"}, f.shownPods(show)[0].Claims)
	assert.Empty(t, f.shownMoves(show))
	assert.Len(t, f.waiting(show), 2, "claim new and pod web")
	assert.Empty(t, f.shownVolumes(only{namespace: "bank", labels: selector}))
}
