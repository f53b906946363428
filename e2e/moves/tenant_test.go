package moves

import (
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// tenant makes a user who is admin of a namespace and may do everything with VolumeMoves
// there, their status too, and who has no rights anywhere else.
func tenant(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	user := "admin-of-" + namespace
	who := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	rbac := bed.Home.Client().RbacV1()
	must.Create(t, rbac.Roles(namespace), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "mover"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"volumemoves", "volumemoves/status"}, Verbs: []string{"*"},
	}}})
	for _, ref := range []rbacv1.RoleRef{{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "mover"}} {
		must.Create(t, rbac.RoleBindings(namespace), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
			RoleRef: ref, Subjects: who})
	}
	config := bed.Home.UserConfig(user)
	client, err := clients.NewVolumeMoveClient(config)
	require.NoError(t, err)
	await.Until(t, "the rights are known", func() bool {
		_, err := client.In(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return config
}

// slowly has a move copy for seconds.
func slowly(m *v1alpha1.VolumeMove) {
	m.Spec.BandwidthLimit = ptr.To(resource.MustParse("300Ki"))
	m.Spec.Passes = ptr.To(int32(20))
}

// heavy puts so much into a volume that a slow move lasts.
func heavy(pod *corev1.Pod) {
	pod.Spec.Containers[0].Command[2] = "head -c 3000000 /dev/urandom > /data/ballast; " + pod.Spec.Containers[0].Command[2]
}

// stubborn has an application not end when it is asked to.
func stubborn(pod *corev1.Pod) {
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	pod.Spec.Containers[0].Command[2] = "trap '' TERM; " + pod.Spec.Containers[0].Command[2]
}

func TestATenantReachesNothingBeyondTheNamespaceWithAMove(t *testing.T) {
	t.Parallel()
	namespace, other := space(t), space(t)
	deploys(t, namespace, "data", heavy, stubborn)
	deploys(t, other, "secret")
	config := tenant(t, namespace)
	client, err := clients.NewVolumeMoveClient(config)
	require.NoError(t, err)
	core, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	t.Run("other namespaces", func(t *testing.T) {
		wanted := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{GenerateName: "theirs-"},
			Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"secret"}, Target: v1alpha1.MoveTarget{Cluster: "west"}}}
		_, err := client.In(other).Create(t.Context(), wanted.DeepCopy(), metav1.CreateOptions{})
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		for _, name := range []string{"secret", other + "/secret", "../" + other + "/secret"} {
			wanted.Spec.Claims = []string{name}
			made, err := client.In(namespace).Create(t.Context(), wanted.DeepCopy(), metav1.CreateOptions{})
			if err != nil {
				continue
			}
			refused := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MovePreCopy)
			assert.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, name)
		}
	})

	made := must.Create(t, client.In(namespace), func() *v1alpha1.VolumeMove {
		m := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.VolumeMoveSpec{
			Claims: []string{"data"}, Target: v1alpha1.MoveTarget{Cluster: "west"}, KeepSourceFor: &metav1.Duration{}}}
		slowly(m)
		m.Spec.Passes = ptr.To(int32(1))
		return m
	}())
	reaches(t, made, v1alpha1.MovePreCopy)

	t.Run("the record, the keys and the movers", func(t *testing.T) {
		for _, ask := range []authorizationv1.ResourceAttributes{
			{Namespace: fabric.System, Resource: "secrets", Verb: "get"}, {Namespace: fabric.System, Resource: "secrets", Verb: "update"},
			{Namespace: fabric.Storage, Resource: "secrets", Verb: "get"}, {Namespace: fabric.Storage, Resource: "secrets", Verb: "create"},
			{Namespace: fabric.Storage, Resource: "pods", Verb: "create"}, {Namespace: fabric.Storage, Resource: "pods", Verb: "delete"},
			{Namespace: fabric.Storage, Resource: "pods", Subresource: "exec", Verb: "create"},
			{Namespace: fabric.Storage, Resource: "pods", Subresource: "portforward", Verb: "create"},
			{Namespace: fabric.Storage, Resource: "pods", Subresource: "ephemeralcontainers", Verb: "update"},
			{Namespace: fabric.Storage, Resource: "persistentvolumeclaims", Verb: "patch"},
			{Resource: "persistentvolumes", Verb: "get"}, {Resource: "persistentvolumes", Verb: "create"},
		} {
			review := must.Create(t, core.AuthorizationV1().SelfSubjectAccessReviews(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &ask}})
			assert.False(t, review.Status.Allowed, "%+v", ask)
		}
	})

	t.Run("the status is nothing that anybody goes by", func(t *testing.T) {
		patch := []byte(`{"status":{"phase":"Finalize","message":"forged","target":{"cluster":"home","class":"forged"},"claims":[{"name":"data","sourceRoot":"forged","targetRoot":"forged"}]}}`)
		_, err := client.In(namespace).Patch(t.Context(), made.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		await.Until(t, "the status is true again", func() bool {
			now := must.Get(t, client.In(namespace), made.Name)
			return now.Status.Message != "forged" && now.Status.Target != nil && now.Status.Target.Cluster == "west" &&
				now.Status.Claims[0].SourceRoot != "forged"
		})
	})

	t.Run("the hold on the claim", func(t *testing.T) {
		claims := core.CoreV1().PersistentVolumeClaims(namespace)
		_, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		assert.True(t, apierrors.IsForbidden(err), "the finalizer: %v", err)
		reaches(t, made, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying)
		await.Until(t, "the claim is locked", func() bool {
			return await.Claim(t, bed.Home.Client(), namespace, "data").Annotations[keys.Move] != ""
		})
		tried := 0
		for what, patch := range map[string]string{
			"the lock":       `{"metadata":{"labels":{"lodestone.dev/moving":null}}}`,
			"another lock":   `{"metadata":{"labels":{"lodestone.dev/moving":"false"}}}`,
			"the move":       `{"metadata":{"annotations":{"lodestone.dev/move":null}}}`,
			"another's move": `{"metadata":{"annotations":{"lodestone.dev/move":"other"}}}`,
			"all of that":    `{"metadata":{"labels":null,"annotations":null,"finalizers":null}}`,
		} {
			_, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			// The move goes on meanwhile.
			if await.Claim(t, bed.Home.Client(), namespace, "data").Annotations[keys.Move] != "" {
				assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
				tried++
			}
		}
		assert.Positive(t, tried)
		_, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`), metav1.PatchOptions{})
		assert.NoError(t, err, "what is not the move's is free")
	})
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	counts(t, folder(t, namespace, "data"), counted(t, folder(t, namespace, "data"))+10)
}

func TestAHostileRemoteClusterLearnsNoCredentialFromAMove(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	made := move(t, namespace, "data", "west", slowly)
	reaches(t, made, v1alpha1.MovePreCopy)

	// What its owner can see there of the move.
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	west := bed.West.Client().CoreV1()
	secrets := must.List(t, west.Secrets(""), of)
	require.Len(t, secrets.Items, 1)
	pods := must.List(t, west.Pods(""), of)
	require.Len(t, pods.Items, 1)
	spec := pods.Items[0].Spec
	assert.False(t, ptr.Deref(spec.AutomountServiceAccountToken, true))
	for _, container := range spec.Containers {
		assert.Empty(t, container.Env)
		assert.Empty(t, container.EnvFrom)
	}
	for _, volume := range spec.Volumes {
		assert.Nil(t, volume.Projected, volume.Name)
		assert.Nil(t, volume.HostPath, volume.Name)
		if volume.Secret != nil {
			assert.Equal(t, secrets.Items[0].Name, volume.Secret.SecretName)
		}
	}
	data := secrets.Items[0].Data
	var names []string
	for name, value := range data {
		names = append(names, name)
		for rest := value; len(rest) > 0; {
			var block *pem.Block
			block, rest = pem.Decode(rest)
			require.NotNil(t, block, "%s holds something that is no key and no certificate", name)
		}
	}
	assert.ElementsMatch(t, []string{"ca.crt", "tls.crt", "tls.key"}, names)

	// With that home lets nobody in.
	for _, cluster := range []*rest.Config{bed.Home.AdminConfig(), bed.West.AdminConfig()} {
		config := rest.AnonymousClientConfig(cluster)
		config.CertData, config.KeyData = data["tls.crt"], data["tls.key"]
		thief, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = thief.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		require.Error(t, err)
		_, err = thief.CoreV1().Secrets(fabric.System).List(t.Context(), metav1.ListOptions{})
		require.Error(t, err)
	}
	act(t, made, v1alpha1.ActionAbort)
	over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
	nothingLeft(t, namespace, made)
}
