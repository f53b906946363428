package replicas

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestStraysAreMoversOfTheReplicaAlone(t *testing.T) {
	pod := func(name, replica, home string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name,
			Labels: map[string]string{keys.MoveOf: replica, keys.HomeID: home}}}
	}
	leaving := pod("replica-1-7-receiver", "1", "h")
	leaving.DeletionTimestamp = &metav1.Time{}
	client := fake.NewClientset(leaving, pod("replica-1-8-receiver-1", "1", "h"), pod("replica-2-8-receiver", "2", "h"),
		pod("replica-1-9-receiver", "1", "another"), pod("move-3-target", "1", "h"))
	c := &Controller{Config: Config{Place: backing.Place{HomeID: "h"}}}
	r := &record.Record{UID: "1", Part: record.Part{Head: backing.Ref{Cluster: keys.Home, Namespace: "storage"}}}
	found, err := c.moversIn(t.Context(), site.Site{Access: remote.Access{Client: client}, Home: true}, r, "storage")
	require.NoError(t, err)
	assert.Equal(t, []decide.Stray{{Name: "replica-1-7-receiver", Leaving: true}, {Name: "replica-1-8-receiver-1"}}, found)
}
