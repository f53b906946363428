// Package tenancy tests, on real control planes, that a user with rights only in
// their own namespace reaches nothing of another tenant's.
package tenancy

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// bed is shared by the tests of this package; each uses namespaces of its own.
// Without control planes it is empty, so that tests get as far as to skip.
var bed = &fabric.Fabric{}

// provisioner is a process of its own, so that it can be told how much memory it
// took. memoryLimit is that of its container in deploy/base, in bytes.
var provisioner *testbed.Program

const memoryLimit = 1 << 30

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{
			ControllerManagerQPS: 500,
			// By default Kubernetes drops data sources of other namespaces: here they get
			// as far as to Lodestone.
			APIServerArgs: []string{"--feature-gates=CrossNamespaceVolumeDataSource=true"},
		}); err != nil {
			return err
		}
		programs, err := sidecars.Build(ctx, os.Stderr)
		if err != nil {
			return err
		}
		if err := sidecars.DefineSnapshots(ctx, bed.Home, programs); err != nil {
			return err
		}
		binary, err := bed.BuildProvisioner(ctx)
		if err != nil {
			return err
		}
		// As in a container with a limit: see deploy/base.
		if err := os.Setenv("GOMEMLIMIT", strconv.Itoa(memoryLimit)); err != nil {
			return err
		}
		if provisioner, err = bed.RunProvisioner(ctx, "provisioner", binary); err != nil {
			return err
		}
		if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// tenant is a namespace of its own in both clusters, and a user who is admin of
// it in both and has no other rights.
type tenant struct {
	t          *testing.T
	namespace  string
	home, west kubernetes.Interface
}

func newTenant(t *testing.T) tenant {
	t.Helper()
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	require.NoError(t, bed.Bind(t.Context(), namespace))
	return tenant{t: t, namespace: namespace, home: admin(t, bed.Home, namespace), west: admin(t, bed.West, namespace)}
}

func admin(t *testing.T, cluster *testbed.Cluster, namespace string) kubernetes.Interface {
	t.Helper()
	user := "admin-of-" + namespace
	must.Create(t, cluster.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	client, err := kubernetes.NewForConfig(cluster.UserConfig(user))
	require.NoError(t, err)
	await.Until(t, "the rights are known", func() bool {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, func() any { return user })
	return client
}

// claim creates a claim at home with the tenant's own rights.
func (x tenant) claim(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	x.t.Helper()
	claim := fabric.NewClaim(x.namespace, name, fabric.Class)
	if change != nil {
		change(claim)
	}
	return must.Create(x.t, x.home.CoreV1().PersistentVolumeClaims(x.namespace), claim)
}

// claimInWest creates a claim in west with the tenant's own rights.
func (x tenant) claimInWest(name string, labels, annotations map[string]string) *corev1.PersistentVolumeClaim {
	x.t.Helper()
	claim := fabric.NewClaim(x.namespace, name, fabric.WestWait)
	claim.Labels, claim.Annotations = labels, annotations
	return must.Create(x.t, x.west.CoreV1().PersistentVolumeClaims(x.namespace), claim)
}

func (x tenant) pod(pod *corev1.Pod) {
	x.t.Helper()
	must.Create(x.t, x.home.CoreV1().Pods(x.namespace), pod)
}

func (x tenant) delete(pod, claim string) {
	x.t.Helper()
	if pod != "" {
		must.Delete(x.t, x.home.CoreV1().Pods(x.namespace), pod)
	}
	must.Delete(x.t, x.home.CoreV1().PersistentVolumeClaims(x.namespace), claim)
}

func (x tenant) bound(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	x.t.Helper()
	var claim *corev1.PersistentVolumeClaim
	await.Until(x.t, fmt.Sprintf("claim %s/%s is bound", x.namespace, name), func() bool {
		claim = claimOf(x.t, bed.Home, x.namespace, name)
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	}, func() any { return x.events() })
	volume := must.Get(x.t, bed.Home.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName)
	return claim, volume
}

// stays checks that a claim of the tenant gets no volume for a while.
func (x tenant) stays(name string) {
	x.t.Helper()
	await.Never(x.t, "claim "+name+" must not be bound", func() bool {
		return claimOf(x.t, bed.Home, x.namespace, name).Status.Phase == corev1.ClaimBound
	})
}

// told waits until there is an event with a reason for a claim of the tenant.
func (x tenant) told(name, reason string) {
	x.t.Helper()
	await.Event(x.t, x.home, x.namespace, name, reason)
}

func (x tenant) events() []string {
	x.t.Helper()
	return await.Events(x.t, bed.Home.Client(), x.namespace)
}

func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Find(t, cluster.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

// homeID is the ID that the home cluster gives itself.
func homeID(t *testing.T) string {
	t.Helper()
	system := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), metav1.NamespaceSystem)
	return string(system.UID)[:8]
}

// forged are the labels of the backing claim of somebody's claim.
func forged(t *testing.T, claim *corev1.PersistentVolumeClaim) map[string]string {
	t.Helper()
	return map[string]string{keys.ClaimUID: string(claim.UID), keys.HomeID: homeID(t)}
}
