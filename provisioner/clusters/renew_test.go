package clusters

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/credentials"
)

func tokenOf(t *testing.T, from, until time.Time) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"sub": "system:serviceaccount:tenant:home", "iat": from.Unix(), "exp": until.Unix()})
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

func kubeconfigWith(t *testing.T, token string) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"west": {Server: "https://west"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"west": {Cluster: "west", AuthInfo: "me"}},
		CurrentContext: "west",
	})
	require.NoError(t, err)
	return data
}

func TestRenew(t *testing.T) {
	now := time.Now()
	old := tokenOf(t, now.Add(-time.Hour), now.Add(time.Minute))
	young := tokenOf(t, now.Add(-time.Minute), now.Add(time.Hour))
	next := tokenOf(t, now, now.Add(2*time.Hour))
	noRights := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, "home", errors.New("no"))
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "west", errors.New("changed"))
	for name, test := range map[string]struct {
		token    string
		unusable bool
		asking   error // answer to the request for a token
		writing  error // answer to the write of the Secret
		answer   string
		stored   bool
		reason   string
		event    string
		again    bool // the next look tries again at once
	}{
		"a young token is left alone":             {token: young, reason: credentials.Valid},
		"an old one is replaced":                  {token: old, answer: next, stored: true, reason: credentials.Valid, event: "Normal TokenRenewed"},
		"not where nothing can be asked":          {token: old, unusable: true, reason: credentials.Valid},
		"without rights the user is told":         {token: old, asking: noRights, reason: credentials.RenewalFailed, event: "Warning CredentialsRenewalFailed"},
		"a token that ends no later is no use":    {token: old, answer: old, reason: credentials.RenewalFailed, event: "Warning CredentialsRenewalFailed"},
		"a Secret that changed is read again":     {token: old, answer: next, writing: changed, reason: credentials.Valid, again: true},
		"a Secret that cannot be written is told": {token: old, answer: next, writing: errors.New("no disk"), reason: credentials.RenewalFailed, event: "Warning CredentialsRenewalFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := kubeconfigWith(t, test.token)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "west", UID: "s", ResourceVersion: "7"}, Data: map[string][]byte{"kubeconfig": kubeconfig, "other": []byte("kept")}}
			home, west := fake.NewClientset(secret), fake.NewClientset()
			asked := 0
			west.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				assert.Equal(t, "token", action.GetSubresource())
				assert.Equal(t, "tenant", action.GetNamespace())
				return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: test.answer}}, test.asking
			})
			var patched []byte
			home.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patched = action.(clienttesting.PatchAction).GetPatch()
				return true, secret, test.writing
			})
			events := record.NewFakeRecorder(10)
			c, remote := renewing(t, home, west, secret, events)
			condition := c.renew(t.Context(), remote, kubeconfig, !test.unusable)
			assert.Equal(t, test.reason, condition.Reason)
			if test.event != "" {
				assert.Contains(t, <-events.Events, test.event)
			}
			assert.Empty(t, events.Events)
			if test.stored {
				var patch corev1.Secret
				require.NoError(t, json.Unmarshal(patched, &patch))
				assert.Equal(t, map[string][]byte{"kubeconfig": kubeconfigWith(t, test.answer)}, patch.Data, "nothing but the token changes")
				assert.Equal(t, "7", patch.ResourceVersion)
				assert.EqualValues(t, "s", patch.UID)
			}
			before := asked
			c.renew(t.Context(), remote, kubeconfig, !test.unusable)
			assert.Equal(t, test.again, asked > before)
			assert.Empty(t, events.Events, "told once")
		})
	}
}

// renewing returns a cluster that is connected to west.
func renewing(t *testing.T, home, west *fake.Clientset, secret *corev1.Secret, events record.EventRecorder) (*Cluster, *v1alpha1.RemoteCluster) {
	t.Helper()
	secrets := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Secrets().Informer()
	require.NoError(t, secrets.GetStore().Add(secret))
	registry := New(Config{Home: home, Secrets: secrets, Namespace: "system", Recorder: events})
	c := &Cluster{id: "west", registry: registry, connection: &connection{client: west}}
	return c, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "system", Name: "west"}},
	}
}

func TestARenewedTokenKeepsTheConnection(t *testing.T) {
	now := time.Now()
	token := func(i int) []byte { return kubeconfigWith(t, tokenOf(t, now, now.Add(time.Duration(i)*time.Hour))) }
	shape := shapeOf(token(1), v1alpha1.SameName)
	assert.Equal(t, shape, shapeOf(token(2), v1alpha1.SameName))
	assert.NotEqual(t, shape, shapeOf(token(1), v1alpha1.Suffixed), "namespaces are kept by another rule")
	usable := verdict{checked: true}
	for name, test := range map[string]struct {
		c    *Cluster
		want bool
	}{
		"the same but for the token":    {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: shape, bearer: &bearer{}, verdict: usable}, want: true},
		"another server":                {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: "other", bearer: &bearer{}, verdict: usable}},
		"a cluster that was in trouble": {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: shape, bearer: &bearer{}}},
		"one that has just come back":   {c: &Cluster{connection: &connection{}, shape: shape, bearer: &bearer{}, verdict: usable}},
		"one without a connection":      {c: &Cluster{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, test.c.renewed(shape)) })
	}
	assert.Empty(t, shapeOf([]byte("{}"), v1alpha1.SameName))
}
