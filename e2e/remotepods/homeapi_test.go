package remotepods

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/network/homeapi"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// inCluster returns the client that rest.InClusterConfig would give a program in a pod of west: with the variables of its
// container, and what is mounted where tokens are.
func inCluster(t *testing.T, pod *corev1.Pod) kubernetes.Interface {
	t.Helper()
	variables := map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		variables[variable.Name] = variable.Value
	}
	files := map[string]string{}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if mount.MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			for _, source := range volume.Projected.Sources {
				if source.Secret == nil {
					continue
				}
				var secret *corev1.Secret
				await.Until(t, "the Secret "+source.Secret.Name+" is in west", func() (there bool) {
					var err error
					secret, err = bed.West.Client().CoreV1().Secrets(pod.Namespace).Get(t.Context(), source.Secret.Name, metav1.GetOptions{})
					return err == nil
				})
				for _, item := range source.Secret.Items {
					files[item.Path] = string(secret.Data[item.Key])
				}
			}
		}
	}
	require.NotEmpty(t, files["token"])
	require.NotEmpty(t, files["ca.crt"])
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://" + net.JoinHostPort(variables["KUBERNETES_SERVICE_HOST"], variables["KUBERNETES_SERVICE_PORT"]),
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(files["ca.crt"])},
		BearerToken:     strings.TrimSpace(files["token"]),
	})
	require.NoError(t, err)
	return client
}

// TestAProgramInWestUsesTheAPIOfHomeAsAtHome: in a namespace that its administrator has labelled, without a word in the pod.
func TestAProgramInWestUsesTheAPIOfHomeAsAtHome(t *testing.T) {
	namespace := open(t)
	must.Patch(t, bed.Home.Client().CoreV1().Namespaces(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+keys.HomeAPI+`":"`+keys.HomeAPIEnabled+`"}}}`))
	allow(t, namespace, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "create", "update"}})

	create(t, newPod(namespace, "db"))
	home, west := runs(t, namespace, "db")
	assert.Equal(t, keys.HomeAudience, home.Annotations[keys.Token], "the policy has asked for it")
	require.Len(t, west.Spec.HostAliases, 1)
	assert.Contains(t, west.Spec.HostAliases[0].Hostnames, "kubernetes.default.svc")
	api := inCluster(t, west)

	must.Create(t, api.CoordinationV1().Leases(namespace), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}})
	_, err := bed.Home.Client().CoordinationV1().Leases(namespace).Get(t.Context(), "leader", metav1.GetOptions{})
	require.NoError(t, err, "the Lease is at home")
	_, err = api.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "its ServiceAccount has no other rights there than at home: %v", err)

	// One that has no token at home has none there.
	create(t, newPod(namespace, "plain", func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(bool) }))
	_, plain := runs(t, namespace, "plain")
	assert.Empty(t, plain.Spec.Containers[0].Env)
	assert.Empty(t, plain.Spec.HostAliases)

	remove(t, namespace, "db", metav1.DeleteOptions{})
	gone(t, namespace, "db", home.UID)
	await.Until(t, "the token ends with its pod", func() bool {
		_, err := api.CoordinationV1().Leases(namespace).Get(t.Context(), "leader", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err)
	})
}

// TestPodsOfANamespaceReachHomesAPIThroughOneOfItsPods: what deploy/home-api puts into a namespace, but for the network fabric, which
// has no place here: its pod is played by this process, and pods of west by addresses of loopback.
func TestPodsOfANamespaceReachHomesAPIThroughOneOfItsPods(t *testing.T) {
	namespace := open(t)
	root := fabric.Root()
	must.Kubectl(t, bed.Home, "", "apply", "-n", namespace, "-f", filepath.Join(root, "deploy", "home-api", "rights.yaml"), "-f",
		filepath.Join(root, "deploy", "home-api", "service.yaml"))
	create(t, newPod(namespace, "db"))
	runs(t, namespace, "db")
	await.Until(t, "the Service is in west, where no pod has its selector", func() bool {
		copied, err := bed.West.Client().CoreV1().Services(namespace).Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err == nil && copied.Spec.ClusterIP == corev1.ClusterIPNone
	})

	// One of the namespace's pods has 127.0.0.9, one of another namespace 127.0.0.8.
	has := func(namespace, address string) {
		pod := fabric.NewPod(namespace, "at")
		pod.Spec.SchedulerName = "nobody"
		made := create(t, pod)
		made.Status.PodIP, made.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
		made.Status.Phase = corev1.PodRunning
		_, err := bed.Home.Client().CoreV1().Pods(namespace).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	has(namespace, "127.0.0.9")
	has(open(t), "127.0.0.8")
	as := func(account string) *rest.Config {
		await.Until(t, "the account is there", func() bool {
			_, err := bed.Home.Client().CoreV1().ServiceAccounts(namespace).Get(t.Context(), account, metav1.GetOptions{})
			return err == nil
		})
		content, err := bed.Home.ServiceAccountKubeconfig(t.Context(), namespace, account)
		require.NoError(t, err)
		config, err := clientcmd.RESTConfigFromKubeConfig(content)
		require.NoError(t, err)
		return config
	}
	config := as("lodestone-home-api")
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	at, err := url.Parse(config.Host)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		_ = homeapi.New(func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
		}, client.CoreV1().Pods(namespace)).Serve(t.Context(), listener)
	}()

	from := func(address string) kubernetes.Interface {
		config := as("default")
		config.Host = "https://kubernetes:6443"
		config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(ctx, "tcp", listener.Addr().String())
		}
		api, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		return api
	}
	lists := func(address string) error {
		_, err := from(address).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	assert.True(t, apierrors.IsForbidden(lists("127.0.0.9")), "it has the rights of its token, by a name for which the certificate is valid")
	err = lists("127.0.0.8")
	require.Error(t, err)
	assert.False(t, apierrors.IsForbidden(err), "the API server hears nothing of it: %v", err)

	// With rights that its ServiceAccount has at home, what it elects and what it says is there.
	creates := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}}
	}
	allow(t, namespace, creates("coordination.k8s.io", "leases"), creates("", "events"))
	api := from("127.0.0.9")
	await.Until(t, "the rights count", func() bool {
		_, err := api.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "leader"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("db")}}, metav1.CreateOptions{})
		return err == nil
	})
	must.Create(t, api.CoreV1().Events(namespace), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "promoted"}, Reason: "Promoted",
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "db"}})
	lease := must.Get(t, bed.Home.Client().CoordinationV1().Leases(namespace), "leader")
	assert.Equal(t, "db", *lease.Spec.HolderIdentity)
	assert.Equal(t, "Promoted", must.Get(t, bed.Home.Client().CoreV1().Events(namespace), "promoted").Reason)
	assert.Nil(t, must.Find(t, bed.West.Client().CoordinationV1().Leases(namespace), "leader"), "west has nothing of it")
	assert.Nil(t, must.Find(t, bed.West.Client().CoreV1().Events(namespace), "promoted"))
	err = lists("127.0.0.9")
	assert.True(t, apierrors.IsForbidden(err), "and it has no more rights than these: %v", err)
}

// allow gives the ServiceAccount default of a namespace rights at home.
func allow(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rights := bed.Home.Client().RbacV1()
	must.Create(t, rights.Roles(namespace), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Rules: rules})
	must.Create(t, rights.RoleBindings(namespace), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "app"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "app"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: namespace}}})
}
