package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a home with west, which is well, and east, which does not answer.
func world(t *testing.T) facts {
	t.Helper()
	// {"exp":1767409445}: a day after now.
	token := "e30.eyJleHAiOjE3Njc0MDk0NDV9.sig"
	kubeconfig, err := credentials.Kubeconfig("west", "lodestone-home", cli.Server{URL: "https://west:6443"}, credentials.Login{Token: token})
	require.NoError(t, err)
	ready := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.Ready, Status: status, Reason: reason, Message: message}}
	}
	return facts{
		remotes: []v1alpha1.RemoteCluster{
			{
				ObjectMeta: metav1.ObjectMeta{Name: "west"},
				Status: v1alpha1.RemoteClusterStatus{
					ClusterUID: "22222222-bbbb", KubernetesVersion: "v1.36.3",
					Conditions:     ready(metav1.ConditionTrue, "Ready", "volumes can be made there"),
					StorageClasses: []v1alpha1.OfferedClass{{Name: "fast", Default: true}, {Name: "slow"}},
				},
			},
			{ObjectMeta: metav1.ObjectMeta{Name: "east"},
				Status: v1alpha1.RemoteClusterStatus{Conditions: ready(metav1.ConditionFalse, "NotReachable", "its API server does not answer")}},
		},
		nodes: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "home-1"}},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.Cluster: "west"}},
				Status: corev1.NodeStatus{
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			},
		},
		volumes: []corev1.PersistentVolume{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{keys.Backing: "west/shop/data/uid"}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{keys.Backing: "home/lodestone-storage/pvc-1/uid"}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{keys.Cluster: "west"}}},
		},
		pods: []corev1.Pod{
			{Spec: corev1.PodSpec{NodeName: "west"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
			{Spec: corev1.PodSpec{NodeName: "west"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
			{Spec: corev1.PodSpec{NodeName: "home-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		},
		heartbeats:  map[string]metav1.Time{"west": metav1.NewTime(now.Add(-3 * time.Second))},
		kubeconfigs: map[string][]byte{"west": kubeconfig},
	}
}

func TestTableShowsClustersAndWhatWaits(t *testing.T) {
	status := Status{Clusters: world(t).clusters(), Waiting: []Waiting{{Kind: "Pod", Namespace: "shop", Name: "web-1", Why: "it waits"}},
		Omitted: 2}
	var out strings.Builder
	require.NoError(t, tables(&out, status, true, now))
	assert.Equal(t,
		`NAME   READY   REASON         VERSION   NODES   CPU      MEMORY   VOLUMES   PODS   CLASSES               LOGIN       EXPIRES     HEARTBEAT
east   False   NotReachable   <none>    0/0     <none>   <none>   0         0      <none>                <unknown>   <unknown>   <none>
west   True    Ready          v1.36.3   1/1     4        8Gi      1         1      fast (default),slow   token       in 24h      3s ago

east: its API server does not answer

NAMESPACE   KIND   NAME    WHY
shop        Pod    web-1   it waits
and up to 2 more: kubectl lodestone why -A lists them
`, trimmed(out.String()))
}

func TestTableSaysWhatIsWrongWithVolumes(t *testing.T) {
	f := world(t)
	for i := range f.remotes {
		if f.remotes[i].Name == "west" {
			f.remotes[i].Status.VolumeHealth = &v1alpha1.VolumeHealth{Bound: 3,
				Troubles: []v1alpha1.VolumeTrouble{{Reason: "BackingLost", Volumes: 2}}}
		}
	}
	var out strings.Builder
	require.NoError(t, tables(&out, Status{Clusters: f.clusters()}, false, now))
	assert.Contains(t, out.String(), "\nwest: BackingLost: volumes: 2; kubectl lodestone why pvc -A says of each what to do\n")
}

func TestTableOfNothingSaysHowToBegin(t *testing.T) {
	var out strings.Builder
	require.NoError(t, tables(&out, Status{}, false, now))
	assert.Contains(t, out.String(), "kubectl lodestone peer --help")
}

func TestJSONHasEmptyListsAndNoAges(t *testing.T) {
	content, err := json.Marshal(Status{Clusters: world(t).clusters(), Waiting: []Waiting{}})
	require.NoError(t, err)
	var read map[string]any
	require.NoError(t, json.Unmarshal(content, &read))
	assert.Equal(t, []any{}, read["waiting"])
	clusters, _ := read["clusters"].([]any)
	require.Len(t, clusters, 2)
	east, _ := clusters[0].(map[string]any)
	assert.Equal(t, "east", east["name"])
	assert.Equal(t, []any{}, east["nodes"])
	assert.Equal(t, []any{}, east["storageClasses"])
	west, _ := clusters[1].(map[string]any)
	assert.Equal(t, map[string]any{"kind": "token", "expires": "2026-01-03T03:04:05Z"}, west["credentials"])
}

func TestALeaseThatIsAskedForAndNotPromisedIsSaid(t *testing.T) {
	clusters := world(t).clusters()
	clusters[1].Conditions = []metav1.Condition{{Type: v1alpha1.PodLeasePromised, Status: metav1.ConditionFalse, Reason: "NotPromised",
		Message: "the remote agent there has not promised yet"}}
	assert.Equal(t, []string{"west: the remote agent there has not promised yet"}, warnings(clusters, now.Add(-time.Hour)))
	clusters[1].Conditions[0].Status = metav1.ConditionTrue
	assert.Empty(t, warnings(clusters, now.Add(-time.Hour)))
}

func TestCredentialsThatEndSoonAreSaid(t *testing.T) {
	clusters := world(t).clusters()
	assert.Empty(t, warnings(clusters, now.Add(-time.Hour)))
	assert.Contains(t, warnings(clusters, now.Add(time.Hour))[0], "west: the credentials end at 2026-01-03T03:04:05Z")
	assert.Contains(t, warnings(clusters, now.Add(48*time.Hour))[0], "west: the credentials ended at")

	clusters[1].Conditions = []metav1.Condition{{Type: v1alpha1.CredentialsValid, Status: metav1.ConditionTrue, Reason: "Valid",
		Message: "the token is valid"}}
	assert.Empty(t, warnings(clusters, now.Add(time.Hour)), "the provisioner renews it")
	clusters[1].Conditions[0].Reason, clusters[1].Conditions[0].Message = "RenewalFailed", "the token cannot be renewed"
	assert.Equal(t, []string{"west: the token cannot be renewed"}, warnings(clusters, now.Add(time.Hour)))
}

func TestOnlyPodsThatHaveToDoWithRemoteClustersConcern(t *testing.T) {
	f := world(t)
	going := metav1.NewTime(now)
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"one without claims that waits": {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}},
		"one that waits in west": {pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"},
			Status: corev1.PodStatus{Phase: corev1.PodPending}}, want: true},
		"one that runs in west": {pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
		"one that runs in west and is not ready": {pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionFalse}}}}, want: true},
		"one that is ready in west": {pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionTrue}}}}},
		"one that has failed in west": {pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "west"},
			Status: corev1.PodStatus{Phase: corev1.PodFailed}}},
		"one that waits for the virtual claim of an ephemeral volume": {pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "da"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "ta",
				VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}},
		}, want: true},
		"one that ends in west": {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &going,
			Finalizers: []string{keys.RemotePodFinalizer}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}}, want: true},
		"one that ends at home": {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &going}}},
		"one that waits for a virtual claim": {pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{
					{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				},
			},
		}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, f.concerns(&test.pod, map[string]bool{"shop/data": true, "shop/da-ta": true}))
		})
	}
}

// trimmed takes the blanks off the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestAStatusCanBeThatOfSomeClusters(t *testing.T) {
	s := Status{Clusters: []Cluster{{Name: "east"}, {Name: "west"}}, Volumes: []Volume{{Claim: "a", Cluster: "east"}, {Claim: "b"}},
		Pods: []Pod{{Name: "a", Cluster: "west"}, {Name: "b", Cluster: "east"}}, Waiting: []Waiting{{Name: "c"}}, Omitted: 1,
		Moves: []Move{{Name: "to", Source: "home", Target: "east"}, {Name: "from", Source: "east", Target: "home"}, {Name: "at home",
			Source: "home", Target: "home"}}, DaemonSets: []string{"logs/agent"}}
	s.limitTo([]string{"east"})
	assert.Equal(t, Status{Clusters: []Cluster{{Name: "east"}}, Volumes: []Volume{{Claim: "a", Cluster: "east"}},
		Pods: []Pod{{Name: "b", Cluster: "east"}}, Waiting: []Waiting{},
		Moves: []Move{{Name: "to", Source: "home", Target: "east"}, {Name: "from", Source: "east", Target: "home"}}}, s)
}
