package lose

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func remote(reachable metav1.ConditionStatus, since time.Duration) *v1alpha1.RemoteCluster {
	r := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	if reachable != "" {
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Reachable, Status: reachable,
			LastTransitionTime: metav1.NewTime(now.Add(-since)), Message: "why"}}
	}
	return r
}

func TestJudgeGivesUpOnlyWhatIsLongGone(t *testing.T) {
	for name, test := range map[string]struct {
		remote *v1alpha1.RemoteCluster
		away   time.Duration
		seen   string
		want   cli.ExitCode
	}{
		"away for longer than asked": {remote: remote(metav1.ConditionFalse, 2*time.Hour), away: time.Hour,
			seen: "2026-01-02T01:04:05Z, 2h ago"},
		"away for a moment": {remote: remote(metav1.ConditionFalse, time.Minute), away: time.Hour, want: cli.Refused},
		"away for a moment, which is enough": {remote: remote(metav1.ConditionFalse, time.Minute), away: time.Second,
			seen: "2026-01-02T03:03:05Z, 1m ago"},
		"it answers":                {remote: remote(metav1.ConditionTrue, 2*time.Hour), want: cli.Refused},
		"it could not be asked":     {remote: remote(metav1.ConditionUnknown, 2*time.Hour), want: cli.Refused},
		"nobody has looked":         {remote: remote("", 0), want: cli.Refused},
		"its clock is ahead":        {remote: remote(metav1.ConditionFalse, -time.Hour), away: time.Hour, want: cli.Refused},
		"there is no RemoteCluster": {away: time.Hour, seen: "unknown, since there is no RemoteCluster of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := Judge("west", test.remote, test.away, now)
			assert.Equal(t, test.want, cli.ExitCodeOf(err))
			assert.Equal(t, test.seen, seen)
		})
	}
}

func TestOnlyTheDataOfAnotherClusterCanBeLost(t *testing.T) {
	for name, test := range map[string]struct {
		backing string
		want    cli.ExitCode
	}{
		"in west":     {backing: "west/shop/data/b1"},
		"at home":     {backing: "home/lodestone-storage/pvc-u1/b1", want: cli.Refused},
		"not virtual": {want: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: test.backing}}}
			assert.Equal(t, test.want, cli.ExitCodeOf(volumeOf(volume)))
		})
	}
}

func TestWhatIsLostIsShownWithWhatComesNext(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v",
		Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}}}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	volume.Spec.PersistentVolumeReclaimPolicy, volume.Status.Phase = corev1.PersistentVolumeReclaimRetain, corev1.VolumeBound
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Finalizers: []string{keys.RemotePodFinalizer}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}},
	}
	assert.Equal(t, []string{
		"volume     v (2Gi, Bound, policy Retain)",
		"claim      shop/data",
		"pods       web-0, web-1",
		"data       cluster west, real claim shop/data",
		"last seen  yesterday",
	}, describe(volume, "yesterday", pods))
	assert.Equal(t, []string{
		"next: kubectl lodestone release pod web-0 -n shop",
		"next: kubectl delete pod web-1 -n shop",
		"next: kubectl delete pvc data -n shop",
		"then: kubectl delete pv v",
	}, next(volume, pods, false))
	pods[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	assert.Equal(t, []string{"next: kubectl lodestone release pod web-0 -n shop", "then: kubectl delete pv v"}, next(volume, pods, true),
		"what is being deleted is not to be deleted once more")
	volume.Status.Phase = corev1.VolumeReleased
	assert.Equal(t, []string{"next: kubectl delete pv v"}, next(volume, nil, false))
	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	assert.Empty(t, next(volume, nil, false), "its claim is gone, so it goes by itself")
}

func TestAClusterAnswersOnlyIfItsServerIsThereAndWell(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	config := &rest.Config{Host: server.URL, BearerToken: "secret"}
	assert.True(t, answers(t.Context(), config))
	status = http.StatusUnauthorized
	assert.True(t, answers(t.Context(), config), "also without credentials")
	status = http.StatusBadGateway
	assert.False(t, answers(t.Context(), config), "what stands before it is not it")
	server.Close()
	assert.False(t, answers(t.Context(), config))
}
