package csi

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// route is a way that a claim can take.
type route struct {
	name   string
	place  func(*corev1.Pod) *corev1.Pod
	driver func() *sidecars.Driver
}

var routes = []route{
	{name: "at home", place: fabric.AtHome, driver: func() *sidecars.Driver { return home }},
	{name: "in the remote cluster", place: fabric.InWest, driver: func() *sidecars.Driver { return west }},
}

// space makes a namespace in both clusters that home may use in west. Before it
// goes, what is in it is deleted: with the namespace home's rights there go, too.
func space(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	require.NoError(t, bed.Bind(t.Context(), namespace))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		client := bed.Home.Client().CoreV1()
		_ = client.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = client.PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		for ctx.Err() == nil {
			left, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID})
			if err == nil && len(left.Items) == 0 {
				return
			}
			time.Sleep(await.Often)
		}
	})
	return namespace
}

// create makes a claim "data" of the virtual class and a pod "db" that uses it.
func create(t *testing.T, namespace string, place func(*corev1.Pod) *corev1.Pod, change ...func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claim := fabric.NewClaim(namespace, "data", virtual)
	for _, c := range change {
		c(claim)
	}
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, place(fabric.NewPod(namespace, "db", "data")))
}

func createPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

// chain is a virtual claim with all that is behind it.
type chain struct {
	claim, backing *corev1.PersistentVolumeClaim
	virtual, real  *corev1.PersistentVolume
	volume         sidecars.Volume // what the driver knows of it
	cluster        *testbed.Cluster
}

// served waits until pod "db" runs and returns what is behind its claim "data".
func served(t *testing.T, namespace string, driver *sidecars.Driver) chain {
	t.Helper()
	runs(t, namespace, "db")
	return behind(t, namespace, "data", driver)
}

// runs waits until a pod runs.
func runs(t *testing.T, namespace, name string) {
	t.Helper()
	await.Until(t, "pod "+name+" runs", func() bool {
		pod, err := bed.Home.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Status.Phase == corev1.PodRunning
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// behind returns what is behind a claim that a pod uses.
func behind(t *testing.T, namespace, name string, driver *sidecars.Driver) chain {
	t.Helper()
	c := chain{cluster: clusterOf(driver)}
	c.claim = claimOf(t, bed.Home, namespace, name)
	c.virtual = volumeOf(t, bed.Home, c.claim.Spec.VolumeName)
	require.NotNil(t, c.virtual)
	ref, err := backing.RefOf(c.virtual)
	require.NoError(t, err)
	c.backing = claimOf(t, c.cluster, ref.Namespace, ref.Name)
	require.NotNil(t, c.backing)
	require.Equal(t, corev1.ClaimBound, c.backing.Status.Phase)
	c.real = volumeOf(t, c.cluster, c.backing.Spec.VolumeName)
	require.NotNil(t, c.real)
	volume, ok := volumes(t, driver)[c.real.Spec.CSI.VolumeHandle]
	require.True(t, ok, "the driver has no volume %s", c.real.Spec.CSI.VolumeHandle)
	c.volume = volume
	return c
}

func volumes(t *testing.T, driver *sidecars.Driver) map[string]sidecars.Volume {
	t.Helper()
	found, err := driver.Volumes()
	require.NoError(t, err)
	return found
}

// claimOf returns a claim, nil if there is none.
func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

// volumeOf returns a volume, nil if there is none.
func volumeOf(t *testing.T, cluster *testbed.Cluster, name string) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, cluster.Client(), name)
}

// sized makes a claim ask for a size.
func sized(size string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

// ask raises what a claim asks for.
func ask(t *testing.T, cluster *testbed.Cluster, namespace, name, size string) {
	t.Helper()
	_, err := cluster.Kubectl(t.Context(), "", "patch", "pvc", "-n", namespace, name,
		"-p", fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
	require.NoError(t, err)
}
