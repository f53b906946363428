package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestASecretOfAnObjectStoreThatCannotBeUsedRefusesTheMove(t *testing.T) {
	secret := func(name, url string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name}, Data: map[string][]byte{"url": []byte(url), "AWS_ACCESS_KEY_ID": []byte("id")}}
	}
	c := New(Config{Client: fake.NewClientset(secret("good", "s3:https://s3/bucket"), secret("bad", "http://s3/bucket")), Namespace: "system"})
	good, err := c.repository(t.Context(), "west", "good")
	require.NoError(t, err)
	assert.Equal(t, "s3:https://s3/bucket", good.URL)
	assert.Equal(t, map[string]string{"AWS_ACCESS_KEY_ID": "id"}, good.Credentials)
	for name, want := range map[string]string{"bad": "Secret system/bad, which RemoteCluster west names", "none": "there is no Secret system/none"} {
		_, err := c.repository(t.Context(), "west", name)
		var why refusal
		require.ErrorAs(t, err, &why)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "move again")
	}
}

func TestAMoverWithAnObjectStoreHasTimeToEmptyIt(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	without := c.moverSpec(r, 0, record.Source, "")
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: moverepository.Ticket{Password: "word"}}
	with := c.moverSpec(r, 0, record.Source, "")
	assert.Greater(t, *with.TerminationGracePeriodSeconds, *without.TerminationGracePeriodSeconds)
	assert.Equal(t, without.TerminationGracePeriodSeconds, c.moverSpec(r, 0, record.Target, "").TerminationGracePeriodSeconds, "pods wait for its end")
	assert.Positive(t, with.Containers[0].Resources.Requests.Memory().Cmp(*without.Containers[0].Resources.Requests.Memory()))

	// What opens the store is kept no longer than movers may need it.
	assert.Equal(t, "word", r.Enter(v1alpha1.MoveRollBack, r.Began["PreCopy"]).Claims[0].Store.Ticket.Password)
	over := r.Enter(v1alpha1.MoveAborted, r.Began["PreCopy"])
	assert.Equal(t, &record.Store{Cluster: "west"}, over.Claims[0].Store)
	assert.Equal(t, "word", r.Claims[0].Store.Ticket.Password)
	assert.True(t, isBlock(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeMode: ptr.To(corev1.PersistentVolumeBlock)}}))
}
