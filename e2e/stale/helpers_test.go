package stale_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// space is an offloaded namespace of one test, which sees the extender ready before
// and after.
func space(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Cluster)
	_, err := bed.Kubectl(t.Context(), "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	require.NoError(t, err)
	awaitReady(t)
	t.Cleanup(bed.line.Mend)
	return namespace
}

func awaitReady(t *testing.T) {
	t.Helper()
	await.Until(t, "the extender is ready", func() bool {
		code, _ := get(t, "/readyz")
		return code == http.StatusOK
	}, func() any { _, body := get(t, "/readyz"); return body })
}

// awaitNotReady waits until the extender says that a kind, any if it is empty, is out
// of sight.
func awaitNotReady(t *testing.T, kind string) {
	t.Helper()
	await.Until(t, "the extender is not ready", func() bool {
		code, body := get(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, kind+" cannot be watched for ")
	}, func() any { _, body := get(t, "/readyz"); return body })
}

func get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, bed.status+path, nil)
	require.NoError(t, err)
	return read(t, request)
}

func read(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// nodesFor returns the nodes that the extender keeps for a pod with a claim.
func nodesFor(t *testing.T, namespace, claim string) []string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-of-" + claim}}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{homeNode, westNode}})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, bed.verbs+"/filter", bytes.NewReader(body))
	require.NoError(t, err)
	code, answer := read(t, request)
	require.Equal(t, http.StatusOK, code, answer)
	var result extenderv1.ExtenderFilterResult
	require.NoError(t, json.Unmarshal([]byte(answer), &result))
	require.Empty(t, result.Error)
	require.NotNil(t, result.NodeNames)
	return *result.NodeNames
}

// explained returns the last decision on the pod of a claim.
func explained(t *testing.T, namespace, claim string) string {
	t.Helper()
	code, body := get(t, "/explain?namespace="+namespace+"&pod=pod-of-"+claim)
	require.Equal(t, http.StatusOK, code, body)
	return body
}

func makeClaim(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := bed.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To("lodestone"),
			Resources:        corev1.VolumeResourceRequirements{Requests: gibibyte()},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return claim
}

// bind gives a claim its volume in west.
func bind(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	name := "pvc-" + string(claim.UID)
	_, err := bed.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      gibibyte(),
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity:                  locality.Affinity("west", nil),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: name}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = bed.Client().CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	await.Until(t, "claim "+claim.Name+" is bound", func() bool {
		bound, err := bed.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	})
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}
