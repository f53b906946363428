package reflect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const ledger = "lodestone-reflected"

func (w *world) secret(name, value string, change func(*corev1.Secret)) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"note": "stays"}}, Data: map[string][]byte{"key": []byte(value)}}
	if change != nil {
		change(secret)
	}
	secret, err := home.Client().CoreV1().Secrets(w.namespace).Create(w.t.Context(), secret, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return secret
}

// awaySecret returns a Secret of west, nil if there is none.
func (w *world) awaySecret(name string) *corev1.Secret {
	w.t.Helper()
	secret, err := west.Client().CoreV1().Secrets(w.away).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return secret
}

func (w *world) hasSecret(name, value string) func() bool {
	return func() bool {
		secret := w.awaySecret(name)
		return secret != nil && string(secret.Data["key"]) == value
	}
}

func (w *world) noSecret(name string) func() bool {
	return func() bool { return w.awaySecret(name) == nil }
}

func TestSecretFollowsThePodThatNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	secrets := home.Client().CoreV1().Secrets(w.namespace)
	password := w.secret("password", "one", nil)
	w.secret("other", "x", nil)
	w.pod("a", func(pod *corev1.Pod) {
		mounts("", "password")(pod)
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	copied := w.awaySecret("password")
	assert.Equal(t, map[string]string{keys.HomeID: w.homeID, keys.Reflected: string(password.UID)}, copied.Labels)
	assert.Empty(t, copied.Annotations)
	assert.Equal(t, map[string]string{"password": string(password.UID)}, w.awayConfigMap(ledger).Data)

	w.secret("registry", "late", func(secret *corev1.Secret) {
		secret.Type = corev1.SecretTypeDockerConfigJson
		secret.Data[corev1.DockerConfigJsonKey] = []byte("{}")
	})
	w.eventually("one made after the pod follows too", w.hasSecret("registry", "late"))
	assert.Equal(t, corev1.SecretTypeDockerConfigJson, w.awaySecret("registry").Type)

	password.Data["key"] = []byte("two")
	password, err := secrets.Update(t.Context(), password, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("the copy follows", w.hasSecret("password", "two"))
	assert.Equal(t, copied.UID, w.awaySecret("password").UID)

	require.NoError(t, west.Client().CoreV1().Secrets(w.away).Delete(t.Context(), "password", metav1.DeleteOptions{}))
	password.Data["key"] = []byte("three")
	_, err = secrets.Update(t.Context(), password, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a copy deleted there is made again", w.hasSecret("password", "three"))

	require.NoError(t, secrets.Delete(t.Context(), "password", metav1.DeleteOptions{}))
	w.eventually("the copy goes with the original", w.noSecret("password"))
	w.secret("password", "four", func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) })
	w.eventually("another one of the name follows too", w.hasSecret("password", "four"))
	require.NoError(t, secrets.Delete(t.Context(), "password", metav1.DeleteOptions{}))
	w.secret("password", "five", func(secret *corev1.Secret) { secret.Type = "example.test/other" })
	w.eventually("so does one that cannot take its place", w.hasSecret("password", "five"))

	w.endPod("a")
	w.eventually("the copies go with the pod", func() bool {
		return w.awaySecret("password") == nil && w.awaySecret("registry") == nil
	})
	w.eventually("the ledger goes with the last copy", func() bool { return w.awayConfigMap(ledger) == nil })
	assert.Nil(t, w.awaySecret("other"), "what no pod names stays at home")
}

func TestSecretsOfWestAreNeverRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	client, err := kubernetes.NewForConfig(w.remoteConfig)
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets(w.away).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "all these tests run without the right to read Secrets: %v", err)
	_, err = client.CoreV1().Secrets(w.away).Get(t.Context(), "password", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "nor one of them: %v", err)
}

func TestForeignSecretIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	foreign := map[string]map[string]string{
		"plain":   nil,
		"another": {keys.HomeID: "another", keys.Reflected: "1234"},
		"strange": {keys.HomeID: w.homeID, keys.Reflected: "1234"},
	}
	theirs := map[string]*corev1.Secret{}
	for name, labels := range foreign {
		secret, err := west.Client().CoreV1().Secrets(w.away).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{"key": []byte("theirs")},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		theirs[name] = secret
	}
	w.open()
	w.start(nil)
	for name := range foreign {
		w.secret(name, "ours", nil)
		w.pod("needs-"+name, mounts("", name))
	}
	for name := range foreign {
		assert.Contains(t, w.told("needs-"+name, "NameTaken"), "left alone")
	}
	for name := range foreign {
		w.endPod("needs-" + name)
	}
	w.eventually("the ledger forgets them", func() bool { return w.awayConfigMap(ledger) == nil })
	for name, secret := range theirs {
		now := w.awaySecret(name)
		require.NotNil(t, now, name)
		assert.Equal(t, secret.ResourceVersion, now.ResourceVersion, name)
	}
}

func TestHomeTokensInSecretsDoNotTravel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.secret("old-token", "x", func(secret *corev1.Secret) {
		secret.Type = corev1.SecretTypeServiceAccountToken
		secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	})
	w.pod("a", mounts("", "old-token"))
	assert.Contains(t, w.told("a", "TokenStaysHome"), keys.Token)
	w.consistently("it stays at home", w.noSecret("old-token"))
}

func TestDeletedLedgerTakesNoSecretFromPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	before := w.awayConfigMap(ledger)
	require.NoError(t, west.Client().CoreV1().ConfigMaps(w.away).Delete(t.Context(), ledger, metav1.DeleteOptions{}))
	w.eventually("the ledger is there again and owns the Secret", func() bool {
		now, secret := w.awayConfigMap(ledger), w.awaySecret("password")
		return now != nil && now.UID != before.UID && secret != nil && len(secret.OwnerReferences) == 1 && secret.OwnerReferences[0].UID == now.UID
	})
	w.consistently("the Secret stays", func() bool { return w.awaySecret("password") != nil })

	w.endPod("a")
	w.eventually("nothing is left", func() bool { return w.awaySecret("password") == nil && w.awayConfigMap(ledger) == nil })
}

func TestForeignLedgerIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	theirs, err := west.Client().CoreV1().ConfigMaps(w.away).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ledger}, Data: map[string]string{"password": "x"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.open()
	w.start(nil)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	assert.Contains(t, w.told("a", "NameTaken"), ledger)
	w.consistently("no Secret is there that might be forgotten", w.noSecret("password"))
	assert.Equal(t, theirs.ResourceVersion, w.awayConfigMap(ledger).ResourceVersion)
}
