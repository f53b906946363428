package kind

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAFailoverBesideAClaimFromASnapshot prints how long it takes until a claim that fails over is bound to its copy at home, and until
// the claim of a drill is, beside a claim of the real class that is made of the same VolumeSnapshot. The driver for tests makes volumes
// in no time, which no other one does: it takes 2 s here. The test fails when one of them takes more than 2.5 times as long. No other one
// runs beside.
func TestAFailoverBesideAClaimFromASnapshot(t *testing.T) {
	if os.Getenv("E2E_BENCH") == "" {
		t.Skip("it is a benchmark: set E2E_BENCH")
	}
	shop := namespace(t)
	const rounds = 3
	var own, drills, failovers, beyond []time.Duration
	for i := range rounds {
		name := fmt.Sprintf("data-%d", i)
		home.apply(t, fmt.Sprintf(diskClaim, shop, name, diskClass, "")+fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[3]s
    command: [sh, -c, "head -c 64M /dev/urandom >/data/blob && sync && sleep 36000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[2]s}}]
`, shop, name, image))
		deletePod(t, readyPod(t, shop, name))
		replicate(t, shop, name)
		version := awaitPaused(t, shop, name+"-home").Versions[0].Name

		heal := home.fail(t, "CreateVolume", `{"delay": "2s"}`)
		own = append(own, untilBound(t, storage, "own", "disk", corev1.TypedObjectReference{APIGroup: new("snapshot.storage.k8s.io"),
			Kind: "VolumeSnapshot", Name: version}))
		drills = append(drills, untilBound(t, shop, "drill", diskClass, corev1.TypedObjectReference{APIGroup: new("lodestone.dev"),
			Kind: "VolumeReplica", Name: name + "-home"}))
		before := claimOf(t, shop, name)
		began := time.Now()
		over := move(t, shop, name, keys.Home, func(spec *v1alpha1.VolumeMoveSpec) {
			spec.KeepSourceFor, spec.Failover = nil, &v1alpha1.MoveFailover{Replica: name + "-home", Version: version}
		})
		reaches(t, over, v1alpha1.MoveResume, v1alpha1.MoveRetain)
		awaitBound(t, shop, name)
		failovers = append(failovers, time.Since(began))
		beyond = append(beyond, failovers[i]-own[i])
		heal()
		t.Logf("the snapshot %s, the drill %s, the failover %s: %s", own[i], drills[i], failovers[i],
			spans(reaches(t, over, v1alpha1.MoveRetain)))
		require.Equal(t, before.UID, claimOf(t, shop, name).UID)
		require.Equal(t, home, volumeOf(t, shop, name).in)
		succeed(t, "move", "finalize", name, "-n", shop)
		succeed(t, "replicate", "delete", name, "-n", shop, "--yes")
	}
	require.NoError(t, measure.Conclude(os.Stdout, []measure.Result{
		measure.Figure("a claim of the real class from a VolumeSnapshot, to Bound", measure.Median(own).Seconds(), "s"),
		measure.Figure("a failover to Bound, beyond that", measure.Median(beyond).Seconds(), "s"),
		measure.AtMost("a drill to Bound, to a claim from a VolumeSnapshot", measure.MedianRatio(drills, own), 2.5, "x"),
		measure.AtMost("a failover to Bound, to a claim from a VolumeSnapshot", measure.MedianRatio(failovers, own), 2.5, "x"),
	}))
}

// untilBound makes a claim of a class from a source, with a pod, returns how long it takes until it is bound, and deletes both.
func untilBound(t *testing.T, namespace, name, class string, source corev1.TypedObjectReference) time.Duration {
	t.Helper()
	claims, pods := home.client.CoreV1().PersistentVolumeClaims(namespace), home.client.CoreV1().Pods(namespace)
	began := time.Now()
	must.Create(t, claims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, DataSourceRef: &source,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("512Mi")}}},
	})
	must.Create(t, pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: image, Command: []string{"sleep", "36000"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
		},
	})
	awaitBound(t, namespace, name)
	took := time.Since(began)
	deletePod(t, readyPod(t, namespace, name))
	must.Delete(t, claims, name)
	return took
}

// awaitBound waits until a claim is bound.
func awaitBound(t *testing.T, namespace, name string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		claim, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, corev1.ClaimBound, claim.Status.Phase)
	}, long, 20*time.Millisecond, "claim %s is bound", name)
}
