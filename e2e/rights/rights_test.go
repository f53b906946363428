// Package rights tests that Lodestone's roles give what is used and no more: it
// has the API servers of real control planes note each request, goes through what
// a claim can go through, and compares that with the roles of deploy/.
package rights

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// bed is empty without control planes, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, AuditAll: true}); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		lead := func(c *provisioner.Config) {
			c.LeaderElect = true
			c.LeaseDuration = 4 * time.Second
		}
		if _, err := bed.StartProvisioner(ctx, lead); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// TestEachRightIsUsedAndNoneIsMissing goes through what claims can go through and
// then reads what the API servers noted.
func TestEachRightIsUsedAndNoneIsMissing(t *testing.T) {
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	require.NoError(t, bed.Bind(t.Context(), namespace))
	attributes(t)
	class(t, namespace)
	for name, place := range map[string]func(*corev1.Pod) *corev1.Pod{"home": fabric.AtHome, "west": fabric.InWest} {
		claim(t, namespace, name, namespace, "silver-"+name)
		pod(t, place(fabric.NewPod(namespace, name, name)))
		await.Until(t, "the claim is bound", bound(t, bed.Home, namespace, name), events(t, namespace))
	}
	await.Until(t, "the shadow is bound", bound(t, bed.West, namespace, "west"), events(t, namespace))

	kubectl(t, "patch", "pvc", "-n", namespace, "west", "--type=merge", "-p",
		`{"metadata":{"labels":{"team":"a"}},"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	await.Until(t, "it has grown", func() bool {
		size := get(t, bed.Home, namespace, "west").Status.Capacity[corev1.ResourceStorage]
		return size.String() == "2Gi"
	}, events(t, namespace))
	twin := "pvc-" + string(get(t, bed.Home, namespace, "home").UID)
	kubectl(t, "delete", "pvc", "-n", fabric.Storage, twin, "--wait=false")
	await.Event(t, bed.Home.Client(), namespace, "home", "BackingHealed")

	refused(t)
	// A second virtual class has its room published, and that is taken back with it.
	for _, name := range []string{"home", "west"} {
		kubectl(t, "delete", "pod,pvc", "-n", namespace, name, "--wait=false")
	}
	await.Until(t, "nothing is left", func() bool {
		left := must.List(t, bed.Home.Client().CoreV1().PersistentVolumes(), metav1.ListOptions{LabelSelector: keys.Cluster})
		return len(left.Items) == 0
	}, events(t, namespace))
	room := func() bool {
		all := must.List(t, bed.Home.Client().StorageV1().CSIStorageCapacities(""))
		return slices.ContainsFunc(all.Items, func(c storagev1.CSIStorageCapacity) bool { return c.StorageClassName == namespace })
	}
	await.Until(t, "the room of the class is published", room)
	kubectl(t, "delete", "storageclass", namespace)
	await.Until(t, "the room of the class is no longer published", func() bool { return !room() })
	kubectl(t, "delete", "remotecluster", "west")

	// What owners of namespaces may give it.
	kubectl(t, "create", "rolebinding", "lodestone-freeze", "-n", "default", "--clusterrole=lodestone-freeze",
		"--serviceaccount=lodestone-system:lodestone-provisioner")

	const account = "lodestone-system:lodestone-provisioner"
	const provisioner = account + ": "
	excuses := roles.Excuses{
		provisioner +
			"patch events": roles.Sometimes("(an event that comes again is counted up)"),
		provisioner + "list events in " +
			fabric.Storage: roles.Sometimes("(a twin that waits for ten seconds and more: e2e/provisioning)"),
		provisioner +
			"update persistentvolumeclaims": roles.Sometimes("(the library takes the node off a claim whose node has just gone)"),
		provisioner + "update storage.k8s.io/csistoragecapacities in " + fabric.System: roles.Sometimes("(room that changes: e2e/capacity)"),
	}
	if bed.Webhook != nil {
		for _, right := range []string{"get namespaces", "list persistentvolumeclaims"} {
			excuses["lodestone-system:lodestone-webhook: "+right] = roles.Sometimes("(a pod that a policy changes: e2e/webhook)")
		}
	}
	excuses = excuses.Add(roles.Moves.Home(account)).Add(roles.Replicas.Home(account)).Add(roles.Snapshots.Home(account))
	roles.Compare(t, bed, bed.Home, excuses, func(fabric.Request) bool { return false })
	roles.Compare(t, bed, bed.West, roles.Excuses{
		"lodestone-volumes:lodestone-home: list events": roles.Sometimes("(a shadow that waits for ten " +
			"seconds and more: e2e/provisioning)"),
		"lodestone-volumes:lodestone-home: create serviceaccounts/token in lodestone-volumes": roles.Sometimes("(a token that is about to end: " +
			"provisioner/clusters)"),
		"lodestone-volumes:lodestone-home: list nodes":  roles.Sometimes("(a volume on the disk of a node: e2e/provisioning)"),
		"lodestone-volumes:lodestone-home: watch nodes": roles.Sometimes("(a volume on the disk of a node: e2e/provisioning)"),
	}.Add(roles.Snapshots.Remote("lodestone-volumes:lodestone-home")), func(q fabric.Request) bool {
		// In a namespace that is not bound.
		return q.ObjectRef.Resource == "persistentvolumeclaims" && q.ObjectRef.Namespace != namespace
	})
}

// refused has a claim refused by west, where its namespace is not bound.
func refused(t *testing.T) {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	kubectl(t, "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	claim(t, namespace, "data", fabric.Class, "")
	pod(t, fabric.Prefer(fabric.NewPod(namespace, "db", "data"), fabric.WestNode))
	await.Event(t, bed.Home.Client(), namespace, "data", "NotAllowed")
	await.Until(t, "it is bound elsewhere", bound(t, bed.Home, namespace, "data"), events(t, namespace))
	kubectl(t, "delete", "pod/db", "pvc/data", "-n", namespace, "--wait=false")
}

// attributes makes an attributes class for the real storage of each cluster.
func attributes(t *testing.T) {
	t.Helper()
	for name, driver := range map[*testbed.Cluster]string{bed.Home: bed.HomeStorage.Name(), bed.West: bed.WestStorage.Name()} {
		must.Create(t, name.Client().StorageV1().VolumeAttributesClasses(), &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: "silver-" + name.Name()}, DriverName: driver, Parameters: map[string]string{"iops": "100"}})
	}
}

// class makes a virtual class that carries labels.
func class(t *testing.T, name string) {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	made := must.Get(t, classes, fabric.Class)
	made.ObjectMeta = metav1.ObjectMeta{Name: name}
	made.Parameters = map[string]string{keys.Carry: "team", keys.LocalClass: fabric.HomeNow}
	must.Create(t, classes, made)
}

func claim(t *testing.T, namespace, name, class, attributes string) {
	t.Helper()
	c := fabric.NewClaim(namespace, name, class)
	if attributes != "" {
		c.Spec.VolumeAttributesClassName = &attributes
	}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), c)
}

func pod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	must.Create(t, bed.Home.Client().CoreV1().Pods(pod.Namespace), pod)
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", args...)
}

func get(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	found, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.PersistentVolumeClaim{}
	}
	require.NoError(t, err)
	return found
}

func bound(t *testing.T, cluster *testbed.Cluster, namespace, name string) func() bool {
	t.Helper()
	return func() bool { return get(t, cluster, namespace, name).Status.Phase == corev1.ClaimBound }
}

func events(t *testing.T, namespace string) func() any {
	t.Helper()
	return func() any { return await.Events(t, bed.Home.Client(), namespace) }
}
