package reflect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// review asks home whose token this is, for an audience.
func review(t *testing.T, token, audience string) authenticationv1.TokenReviewStatus {
	t.Helper()
	answer, err := home.Client().AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status
}

func TestHomeTokenTravelsOnlyOnRequestBoundToPodAndAudience(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	silent := w.pod("silent", nil)
	asking := w.pod("asking", func(pod *corev1.Pod) { pod.Annotations = map[string]string{keys.Token: "vault"} })
	name := needs.Token(asking.UID)
	w.eventually("the token is there", func() bool { return w.awaySecret(name) != nil })
	secret := w.awaySecret(name)
	assert.Equal(t, w.namespace, string(secret.Data["namespace"]))
	assert.Contains(t, string(secret.Data["ca.crt"]), "BEGIN CERTIFICATE")
	status := review(t, string(secret.Data["token"]), "vault")
	require.True(t, status.Authenticated, status.Error)
	assert.Equal(t, "system:serviceaccount:"+w.namespace+":default", status.User.Username)
	assert.Equal(t, authenticationv1.ExtraValue{string(asking.UID)}, status.User.Extra["authentication.kubernetes.io/pod-uid"])
	assert.False(t, review(t, string(secret.Data["token"]), "https://kubernetes.default.svc").Authenticated, "it is of no use for the API itself")
	assert.Nil(t, w.awaySecret(needs.Token(silent.UID)))

	w.clock.Step(50 * time.Minute)
	w.eventually("the token is renewed in time", func() bool {
		now := w.awaySecret(name)
		return now != nil && string(now.Data["token"]) != string(secret.Data["token"])
	})

	_, err := home.Client().CoreV1().Pods(w.namespace).Patch(t.Context(), "asking", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+keys.Token+`":"other"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.eventually("the token is for another audience on request", func() bool {
		return review(t, string(w.awaySecret(name).Data["token"]), "other").Authenticated
	})

	w.endPod("asking")
	w.eventually("the token goes with the pod", w.noSecret(name))
	w.eventually("nothing is left", func() bool { return w.awayConfigMap(ledger) == nil })
}
