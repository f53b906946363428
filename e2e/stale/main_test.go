// Package stale tests what the extender does while it cannot see what happens in
// the cluster: it answers from what it knew, says so, and catches up by itself.
package stale_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/faultynetwork"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

const (
	system   = "lodestone-system"
	homeNode = "home-1"
	westNode = "virtual-west"
)

// bed is a home cluster and an extender, with a line between the two. Its tests
// take turns.
var bed struct {
	*testbed.Cluster
	line          *faultynetwork.Line
	verbs, status string
}

func TestMain(m *testing.M) {
	// How long a connection may be silent before its other end is asked for a sign
	// of life, and for how long that may take: 30 and 15 unless told otherwise.
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if err := os.Setenv(name, "1"); err != nil {
			panic(err)
		}
	}
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"})
	if err != nil {
		return err
	}
	bed.Cluster = clusters[0]
	base, err := bed.Kustomization("base")
	if err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "apply", "-k", base); err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	if err := furnish(ctx); err != nil {
		return err
	}
	return run(ctx)
}

// furnish makes a node at home, and west with its virtual node.
func furnish(ctx context.Context) error {
	for _, node := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: homeNode}},
		{ObjectMeta: metav1.ObjectMeta{Name: westNode, Labels: map[string]string{keys.Cluster: "west"}}},
	} {
		if _, err := bed.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", node.Name, err)
		}
	}
	clusters, err := clients.NewRemoteClusters(bed.AdminConfig())
	if err != nil {
		return err
	}
	west, err := clusters.Create(ctx, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: "west"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make west: %w", err)
	}
	west.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now()}}
	west.Status.StorageClasses = []v1alpha1.OfferedClass{{Name: "standard", Default: true}}
	if _, err = clusters.UpdateStatus(ctx, west, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that west is ready: %w", err)
	}
	return nil
}

// run starts the extender with the rights of its ServiceAccount.
func run(ctx context.Context) error {
	home, err := bed.ServiceAccountConfig(ctx, system, "lodestone-extender")
	if err != nil {
		return err
	}
	if bed.line, err = faultynetwork.New(ctx, strings.TrimPrefix(home.Host, "https://")); err != nil {
		return err
	}
	home.Host = bed.line.URL()
	var listen net.ListenConfig
	verbs, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the extender: %w", err)
	}
	status, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the probes: %w", err)
	}
	bed.verbs, bed.status = "http://"+verbs.Addr().String(), "http://"+status.Addr().String()
	go func() {
		if err := app.Run(ctx, &app.Config{Home: home, Verbs: verbs, Status: status, MaxStaleness: time.Second}); err != nil {
			fmt.Fprintln(os.Stderr, "the extender ended:", err)
		}
	}()
	return nil
}

// newNamespace is an offloaded namespace of one test, which sees the extender ready before
// and after.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Cluster)
	must.Kubectl(t, bed, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
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
	pod.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
	}
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
	return must.Create(t, bed.Client().CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To("lodestone"),
			Resources:        corev1.VolumeResourceRequirements{Requests: gibibyte()},
		},
	})
}

// bind gives a claim its volume in west.
func bind(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	name := "pvc-" + string(claim.UID)
	must.Create(t, bed.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      gibibyte(),
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace,
				Name: claim.Name, UID: claim.UID},
			NodeAffinity:           locality.Affinity("west", nil),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: name}},
		},
	})
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
