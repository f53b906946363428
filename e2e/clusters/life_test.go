package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func storageClass(t *testing.T, cluster *testbed.Cluster, name, provisioner string) {
	t.Helper()
	classes := cluster.Client().StorageV1().StorageClasses()
	must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	t.Cleanup(func() { must.Delete(t, classes, name) })
}

// TestTheLifeOfARemoteCluster follows one from a mistake to its end.
func TestTheLifeOfARemoteCluster(t *testing.T) {
	testbed.Require(t)
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	registered(t, "east", nil)
	awaitReady(t, "east", metav1.ConditionFalse, "BadKubeconfig")

	secret(t, fabric.System, "east", "kubeconfig", kubeconfigOf(t, east))
	awaitReady(t, "east", metav1.ConditionTrue, "Ready")
	seen := status(t, "east")
	kubernetes, err := built.Chosen(built.ControlPlane, true)
	require.NoError(t, err)
	assert.Equal(t, kubernetes.Version, seen.KubernetesVersion)
	assert.NotEmpty(t, seen.ClusterUID)
	assert.Zero(t, seen.Volumes)
	assert.Empty(t, seen.StorageClasses, "there are none")

	storageClass(t, east, "virtual", keys.Driver)
	storageClass(t, east, "real", "disk.east.test")
	await.Until(t, "the new class is shown", func() bool { return len(status(t, "east").StorageClasses) > 0 }, func() any {
		return status(t, "east")
	})
	assert.Equal(t,
		[]v1alpha1.OfferedClass{{Name: "real", Provisioner: "disk.east.test", BindingMode: storagev1.VolumeBindingWaitForFirstConsumer}},
		status(t, "east").StorageClasses, "the virtual one is left out")
	awaitCapacity(t, "real")

	held := must.Get(t, secrets, "east")
	assert.Contains(t, held.Finalizers, keys.ClusterFinalizer, "nobody can take the Secret away")

	// Tokens end with their account.
	accounts := east.Client().CoreV1().ServiceAccounts(accountNamespace)
	account := must.Get(t, accounts, accountName)
	must.Delete(t, accounts, accountName)
	account.ResourceVersion, account.UID = "", ""
	must.Create(t, accounts, account)
	assert.Contains(t, awaitReady(t, "east", metav1.ConditionFalse, "NotAuthorized"), "renew them in the Secret")

	replaceKubeconfig(t, "east", kubeconfigOf(t, east))
	awaitReady(t, "east", metav1.ConditionTrue, "Ready")

	unregister(t, "east")
	await.Until(t, "the Secret is let go", func() bool {
		free := must.Get(t, secrets, "east")
		return len(free.Finalizers) == 0
	}, func() any { return "still held" })
}

func TestACredentialThatIsRotatedServesOn(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "before", "before")

	replaceKubeconfig(t, "west", kubeconfigOf(t, bed.West))
	useInWest(t, namespace, "after", "after")

	volume := claimOf(t, bed.Home, namespace, "before").Spec.VolumeName
	deletePodAndClaim(t, namespace, "before", "before")
	await.Until(t, "the volume made before goes", func() bool { return !hasVolume(t, volume) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
	assert.Nil(t, claimOf(t, bed.West, namespace, "before"))
	deletePodAndClaim(t, namespace, "after", "after")
	await.Until(t, "the shadow made after goes", func() bool { return claimOf(t, bed.West, namespace, "after") == nil },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAClusterThatHoldsVolumesStays(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	await.Until(t, "the volume is counted", func() bool { return status(t, "west").Volumes > 0 }, func() any { return status(t, "west") })
	assert.Contains(t, status(t, "west").Namespaces, namespace)

	must.Delete(t, bed.Remotes, "west")
	message := awaitReady(t, "west", metav1.ConditionFalse, "Leaving")
	assert.Contains(t, message, "volumes have their data there")
	assert.Contains(t, message, "kubectl get pv -l lodestone.dev/cluster=west")
	await.Never(t, "neither object nor volume may go", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
		return err != nil || !hasVolume(t, volume)
	})

	bed.CreateClaim(t, fabric.NewClaim(namespace, "new", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "new", "new")))
	requireUnscheduled(t, namespace, "new")
	assert.Nil(t, claimOf(t, bed.West, namespace, "new"), "it takes no new volumes")

	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "the volume goes", func() bool { return !hasVolume(t, volume) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
	unregister(t, "west")
	require.NoError(t, bed.Home.Client().CoreV1().Secrets(fabric.System).Delete(t.Context(), "west", metav1.DeleteOptions{}),
		"it is not held any more")

	// The pod that waits is woken when the cluster is back.
	require.NoError(t, bed.Peer(t.Context()))
	require.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "new"))
	deletePodAndClaim(t, namespace, "new", "new")
}

func TestAKubeconfigOfAnotherClusterDeletesNothing(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	shadow := claimOf(t, bed.West, namespace, "data")
	uid := status(t, "west").ClusterUID

	replaceKubeconfig(t, "west", kubeconfigOf(t, east))
	t.Cleanup(func() { awaitReady(t, "west", metav1.ConditionTrue, "Ready") })
	assert.Contains(t, awaitReady(t, "west", metav1.ConditionFalse, "OtherCluster"), "put back the kubeconfig")
	assert.Equal(t, uid, status(t, "west").ClusterUID, "what it stands for is not forgotten")

	deletePodAndClaim(t, namespace, "db", "data")
	await.Never(t, "the volume must stay until its own cluster answers", func() bool { return !hasVolume(t, volume) })
	still := claimOf(t, bed.West, namespace, "data")
	require.NotNil(t, still)
	assert.Equal(t, shadow.UID, still.UID)
	assert.Nil(t, still.DeletionTimestamp)

	replaceKubeconfig(t, "west", kubeconfigOf(t, bed.West))
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	await.Until(t, "all goes", func() bool { return !hasVolume(t, volume) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
}

// TestARemoteClusterMadeAnewWithTheKubeconfigOfAnotherClusterDeletesNothing makes the RemoteCluster
// anew, as GitOps and backups do: without a status.
func TestARemoteClusterMadeAnewWithTheKubeconfigOfAnotherClusterDeletesNothing(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	uid := status(t, "west").ClusterUID
	assert.Equal(t, uid, await.Volume(t, bed.Home.Client(), volume).Annotations[keys.ClusterUID])

	replaceKubeconfig(t, "west", kubeconfigOf(t, east))
	makeAnew(t, "west")
	t.Cleanup(func() { awaitReady(t, "west", metav1.ConditionTrue, "Ready") })
	assert.Contains(t, awaitReady(t, "west", metav1.ConditionFalse, "OtherCluster"), "put back the kubeconfig")
	assert.Empty(t, status(t, "west").ClusterUID, "the wrong cluster is not written down")

	deletePodAndClaim(t, namespace, "db", "data")
	await.Never(t, "the volume must stay until its own cluster answers", func() bool { return !hasVolume(t, volume) })
	require.NotNil(t, claimOf(t, bed.West, namespace, "data"))

	replaceKubeconfig(t, "west", kubeconfigOf(t, bed.West))
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	await.Until(t, "all goes", func() bool { return !hasVolume(t, volume) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
}

// TestTheClusterThatPeerHasWrittenDownIsHeeded takes the kubeconfig of another cluster before anything is stored there.
func TestTheClusterThatPeerHasWrittenDownIsHeeded(t *testing.T) {
	testbed.Require(t)
	secret(t, fabric.System, "north", "kubeconfig", kubeconfigOf(t, east))
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "north", Annotations: map[string]string{keys.ClusterUID: "of-another"}},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: "north"}},
	})
	t.Cleanup(func() { unregister(t, "north") })
	assert.Contains(t, awaitReady(t, "north", metav1.ConditionFalse, "OtherCluster"), "delete the annotation "+keys.ClusterUID)
	assert.Empty(t, status(t, "north").ClusterUID, "the wrong cluster is not written down")

	must.Patch(t, bed.Remotes, "north", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, keys.ClusterUID))
	awaitReady(t, "north", metav1.ConditionTrue, "Ready")
}

// makeAnew has a RemoteCluster gone, whatever holds it, and makes it anew.
func makeAnew(t *testing.T, id string) {
	t.Helper()
	before := must.Get(t, bed.Remotes, id)
	must.Delete(t, bed.Remotes, id)
	must.Patch(t, bed.Remotes, id, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: before.Spec})
}

// requestSize makes a claim at home ask for a size.
func requestSize(t *testing.T, namespace, name, size string) {
	t.Helper()
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// awaitSize waits until a claim at home has a size.
func awaitSize(t *testing.T, namespace, name, size string) {
	t.Helper()
	await.Until(t, "claim "+name+" has "+size, func() bool {
		return claimOf(t, bed.Home, namespace, name).Status.Capacity.Storage().String() == size
	}, func() any { return claimOf(t, bed.Home, namespace, name).Status }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAClaimThatAsksForMoreWhileItsClusterIsAwayGrowsLater(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")
	awaitSize(t, namespace, "data", "1Gi")

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, bed.West.StartAPIServer(context.Background()))
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	awaitReady(t, "west", metav1.ConditionFalse, "NotReachable")
	requestSize(t, namespace, "data", "3Gi")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "ExpansionWaits"), "once cluster west can be used again")

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	awaitSize(t, namespace, "data", "3Gi")
}

func TestAClaimGrowsThoughNobodyKnowsWhetherItsClusterHeard(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")

	require.NoError(t, bed.West.PauseAPIServer())
	t.Cleanup(func() {
		_ = bed.West.ResumeAPIServer()
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	// Not known to be dead yet: it is asked.
	requestSize(t, namespace, "data", "3Gi")
	awaitReady(t, "west", metav1.ConditionFalse, "NotReachable")
	requestSize(t, namespace, "data", "4Gi")
	require.NoError(t, bed.West.ResumeAPIServer())
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	awaitSize(t, namespace, "data", "4Gi")
	assert.Equal(t, "4Gi", claimOf(t, bed.West, namespace, "data").Spec.Resources.Requests.Storage().String())
}

// awaitCapacity checks that the RemoteCluster of east follows what is told there of
// the room that its one real class has.
func awaitCapacity(t *testing.T, class string) {
	t.Helper()
	becomes := func(want string) {
		t.Helper()
		shown := func() string {
			if free := status(t, "east").StorageClasses[0].Free; free != nil {
				return free.String()
			}
			return "unknown"
		}
		await.Until(t, "the room becomes "+want, func() bool { return shown() == want }, func() any { return shown() })
	}
	capacities := east.Client().StorageV1().CSIStorageCapacities(metav1.NamespaceDefault)
	becomes("unknown")
	room := must.Create(t, capacities, &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "room"}, StorageClassName: class, Capacity: ptr.To(resource.MustParse("10Gi")),
	})
	becomes("10Gi")
	room.Capacity = ptr.To(resource.MustParse("0"))
	must.Update(t, capacities, room)
	becomes("0")
	must.Delete(t, capacities, room.Name)
	becomes("unknown")
}

func TestAClusterThatCannotBeUsedSaysWhy(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { // after all of the rows, which run at once
		assert.Equal(t, metav1.ConditionTrue, condition(t, "west", v1alpha1.Ready).Status, "west is not touched by any of them")
	})
	for name, test := range map[string]struct {
		id         string
		kubeconfig func(t *testing.T) []byte // nil: no Secret
		reason     string
		says       []string
		authorized metav1.ConditionStatus
	}{
		"there is no Secret": {
			id: "no-secret", reason: "BadKubeconfig", says: []string{"there is no Secret lodestone-system/no-secret"},
			authorized: metav1.ConditionFalse},
		"the kubeconfig is none": {
			id: "garbage", kubeconfig: func(*testing.T) []byte { return []byte("hello") },
			reason: "BadKubeconfig", says: []string{"cannot be read"}, authorized: metav1.ConditionFalse},
		"the kubeconfig runs a command": {
			id: "exec", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
					user.Token = ""
					user.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1",
						InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
				})
			}, reason: "BadKubeconfig", says: []string{"runs a command (exec)"}, authorized: metav1.ConditionFalse},
		"the token is wrong": {
			id: "token", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.Token = "wrong" })
			}, reason: "NotAuthorized", says: []string{"does not accept the credentials", "renew them"}, authorized: metav1.ConditionFalse},
		"there are no rights": {
			id: "no-rights", kubeconfig: func(t *testing.T) []byte { return accountWith(t, bed.West, "no-rights") },
			reason: "NotAuthorized", says: []string{"may not get namespace kube-system"}, authorized: metav1.ConditionFalse},
		"some rights are missing": {
			id: "some-rights", kubeconfig: func(t *testing.T) []byte {
				return accountWith(t, bed.West, "some-rights",
					rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
					rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list"}})
			}, reason: "NotAuthorized",
			says:       []string{"may not watch persistentvolumes, list storageclasses, watch storageclasses there", "deploy/remote-volumes"},
			authorized: metav1.ConditionFalse},
		"nobody answers": {
			id: "nobody", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cluster.Server = "https://127.0.0.1:1" })
			}, reason: "NotReachable", says: []string{"connection refused"}, authorized: metav1.ConditionUnknown},
		"it is the home cluster itself": {
			id: "itself", kubeconfig: func(t *testing.T) []byte {
				return accountWith(t, bed.Home, "itself", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
			}, reason: "PointsHome", says: []string{"the home cluster itself"}, authorized: metav1.ConditionTrue},
		"an older object stands for it": {
			id: "west-again", kubeconfig: func(t *testing.T) []byte { return kubeconfigOf(t, bed.West) },
			reason: "Duplicate", says: []string{`"west" already stands`}, authorized: metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kubeconfig []byte
			if test.kubeconfig != nil {
				kubeconfig = test.kubeconfig(t)
			}
			registered(t, test.id, kubeconfig)
			message := awaitReady(t, test.id, metav1.ConditionFalse, test.reason)
			for _, says := range test.says {
				assert.Contains(t, message, says)
			}
			assert.Equal(t, test.authorized, condition(t, test.id, v1alpha1.Authorized).Status)
			assert.Empty(t, status(t, test.id).StorageClasses, "nothing is offered")
			// The object goes, and its Secret with it, when the test cleans up.
		})
	}
}

func TestASecretMustBeWhereLodestoneRuns(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	secret(t, namespace, "elsewhere", "kubeconfig", kubeconfigOf(t, east))
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: namespace, Name: "elsewhere"}},
	})
	t.Cleanup(func() { unregister(t, "elsewhere") })
	assert.Contains(t, awaitReady(t, "elsewhere", metav1.ConditionFalse, "BadKubeconfig"), "must be in namespace "+fabric.System)
}

func TestASecretNeedsTheKeyThatIsNamed(t *testing.T) {
	testbed.Require(t)
	secret(t, fabric.System, "other-key", "config", kubeconfigOf(t, east))
	registered(t, "other-key", nil)
	assert.Contains(t, awaitReady(t, "other-key", metav1.ConditionFalse, "BadKubeconfig"), "has no key kubeconfig")
}

func TestTheAPIServerRefusesWhatCannotWork(t *testing.T) {
	testbed.Require(t)
	valid := func(name string) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: "none"}}}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.RemoteCluster)
		says   string
	}{
		"the name of the home cluster":  {change: func(r *v1alpha1.RemoteCluster) { r.Name = "home" }, says: "stands for the home cluster"},
		"a name that is no label value": {change: func(r *v1alpha1.RemoteCluster) { r.Name = strings.Repeat("a", 64) }, says: "at most 63"},
		"a name with a dot":             {change: func(r *v1alpha1.RemoteCluster) { r.Name = "west.one" }, says: "cluster ID"},
		"a Secret without a name": {change: func(r *v1alpha1.RemoteCluster) { r.Spec.KubeconfigSecretRef.Name = "" },
			says: "kubeconfigSecretRef.name"},
		"a strategy that nobody knows": {change: func(r *v1alpha1.RemoteCluster) { r.Spec.Namespaces.Strategy = "Random" }, says: "Random"},
	} {
		t.Run(name, func(t *testing.T) {
			remote := valid("not-valid")
			test.change(remote)
			_, err := bed.Remotes.Create(t.Context(), remote, metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, test.says)
		})
	}
	t.Run("another strategy later", func(t *testing.T) {
		registered(t, "moved", nil)
		for range 5 {
			remote, err := bed.Remotes.Get(t.Context(), "moved", metav1.GetOptions{})
			require.NoError(t, err)
			remote.Spec.Namespaces.Strategy = v1alpha1.Suffixed
			if _, err = bed.Remotes.Update(t.Context(), remote, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
				continue
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, "cannot be changed")
			return
		}
		require.Fail(t, "only conflicts")
	})
}

// altered returns the kubeconfig of west after a change.
func altered(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfigOf(t, bed.West))
	require.NoError(t, err)
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

// accountWith returns the kubeconfig of a new account with just these rights.
func accountWith(t *testing.T, cluster *testbed.Cluster, name string, rules ...rbacv1.PolicyRule) []byte {
	t.Helper()
	namespace := testbed.Namespace(t, cluster)
	must.Create(t, cluster.Client().CoreV1().ServiceAccounts(namespace), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	rbac := cluster.Client().RbacV1()
	must.Create(t, rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: rules})
	must.Create(t, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	data, err := cluster.ServiceAccountKubeconfig(t.Context(), namespace, name)
	require.NoError(t, err)
	return data
}
