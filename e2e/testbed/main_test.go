package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	driver    = "disk.example.com"
	immediate = "immediate"
	wait      = "wait" // the class that waits for the first consumer

	long  = 30 * time.Second
	often = 20 * time.Millisecond
)

// What the tests share: two clusters with two nodes each and a real class of either
// binding mode; home has a virtual node for west too.
var (
	home, west           *testbed.Cluster
	homeDisks, westDisks *fakeprovisioner.Provisioner
	homeNodes            *fakekubelet.Kubelets
)

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		testbed.Main(m, startHelper)
	}
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
	if err != nil {
		return err
	}
	home, west = clusters[0], clusters[1]
	if homeDisks, err = fakeprovisioner.New(home.AdminConfig(), driver); err != nil {
		return err
	}
	if westDisks, err = fakeprovisioner.New(west.AdminConfig(), driver); err != nil {
		return err
	}
	if err := errors.Join(homeDisks.Start(ctx), westDisks.Start(ctx)); err != nil {
		return err
	}
	drivers := map[string]int32{driver: 0}
	_, err = fakekubelet.Start(ctx, fakekubelet.Options{Config: west.AdminConfig(), Nodes: []fakekubelet.Node{
		{Name: "west-1", Drivers: drivers}, {Name: "west-2", Drivers: drivers},
	}})
	if err != nil {
		return err
	}
	homeNodes, err = fakekubelet.Start(ctx, fakekubelet.Options{Config: home.AdminConfig(), Nodes: []fakekubelet.Node{
		{Name: "home-1", Drivers: drivers}, {Name: "home-2", Drivers: drivers},
		{Name: "west", Remote: &fakekubelet.Remote{ID: "west", Config: west.AdminConfig(), Taint: true}},
	}})
	if err != nil {
		return err
	}
	if err := createClasses(ctx, home, homeDisks); err != nil {
		return err
	}
	return createClasses(ctx, west, westDisks)
}

func createClasses(ctx context.Context, c *testbed.Cluster, disks *fakeprovisioner.Provisioner) error {
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		immediate: storagev1.VolumeBindingImmediate, wait: storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		class := disks.Class(name, mode)
		class.MountOptions = []string{"noatime"}
		if _, err := c.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create class %s: %w", name, err)
		}
	}
	return nil
}

func createClaim(t *testing.T, c *testbed.Cluster, namespace, name, class string) {
	t.Helper()
	must.Create(t, c.Client().CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1500k")}},
		},
	})
}

// pod mounts the claims.
func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
	}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return p
}

func createPod(t *testing.T, c *testbed.Cluster, namespace string, p *corev1.Pod) {
	t.Helper()
	must.Create(t, c.Client().CoreV1().Pods(namespace), p)
}

func deletePod(t *testing.T, c *testbed.Cluster, namespace, name string) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Pods(namespace).Delete(t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](30)}))
}

func eventuallyPod(t *testing.T, c *testbed.Cluster, namespace, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	require.Eventually(t, func() bool {
		var err error
		found, err = c.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && wanted(found)
	}, long, often, "pod %s in cluster %s", name, c.Name())
	return found
}

func runs(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func eventuallyBound(t *testing.T, c *testbed.Cluster, namespace, claim string) *corev1.PersistentVolume {
	t.Helper()
	var volume *corev1.PersistentVolume
	require.Eventually(t, func() bool {
		found, err := c.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim, metav1.GetOptions{})
		if err != nil || found.Status.Phase != corev1.ClaimBound {
			return false
		}
		volume, err = c.Client().CoreV1().PersistentVolumes().Get(t.Context(), found.Spec.VolumeName, metav1.GetOptions{})
		return err == nil
	}, long, often, "claim %s in cluster %s", claim, c.Name())
	return volume
}

// eventuallyEvent waits for an event about the object that contains the text.
func eventuallyEvent(t *testing.T, c *testbed.Cluster, namespace, object, text string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		events, err := c.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
		require.NoError(collect, err)
		var messages []string
		for _, event := range events.Items {
			messages = append(messages, event.Message)
		}
		require.Contains(collect, fmt.Sprint(messages), text)
	}, long, often)
}
