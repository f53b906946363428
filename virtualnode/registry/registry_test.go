package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func store(t *testing.T, example runtime.Object, objects ...any) cache.SharedIndexInformer {
	t.Helper()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, example, 0, cache.Indexers{})
	for _, object := range objects {
		require.NoError(t, informer.GetStore().Add(object))
	}
	return informer
}

func remoteCluster(name string, created int64) *v1alpha1.RemoteCluster {
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0))},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "system", Name: name}},
	}
}

func TestARemoteClusterLeadsToTheClusterThatPeerMadeItFor(t *testing.T) {
	west := remoteCluster("west", 1)
	west.Annotations = map[string]string{keys.ClusterUID: "west-uid"}
	r := New(Config{HomeUID: "home-uid", Objects: store(t, &v1alpha1.RemoteCluster{}, west)})
	reason, _ := r.unwanted("west", "west-uid")
	assert.Empty(t, reason)
	reason, sentence := r.unwanted("west", "east-uid")
	assert.Equal(t, "OtherCluster", reason)
	assert.Contains(t, sentence, "put back the kubeconfig")
}

func TestWhetherHomeIsInDoubtIsNotReadFromACache(t *testing.T) {
	secret := func(record homeepoch.Record) *corev1.Secret {
		text, err := record.Encode()
		require.NoError(t, err)
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: homeepoch.SecretName("west")},
			Data: map[string][]byte{homeepoch.SecretKey: text}}
	}
	west := remoteCluster("west", 1)
	west.UID = "w"
	home := fake.NewClientset(secret(homeepoch.Record{RemoteCluster: "w", Doubt: &homeepoch.Doubt{ID: "d"}}))
	// Home went back to a backup, and the informer's watch goes on from what is lost.
	r := New(Config{Home: home, Namespace: "system", Objects: store(t, &v1alpha1.RemoteCluster{}, west),
		Secrets: store(t, &corev1.Secret{}, secret(homeepoch.Record{RemoteCluster: "w"}))})
	record, uid := r.record(t.Context(), "west")
	assert.Equal(t, "w", uid)
	require.NotNil(t, record)
	assert.NotNil(t, record.Doubt)

	home.PrependReactor("list", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no answer")
	})
	record, _ = r.record(t.Context(), "west")
	require.NotNil(t, record, "what was told last counts while home does not answer")
	assert.Nil(t, record.Doubt)
}

func TestOfTwoRemoteClustersForOneClusterTheOlderIsUsed(t *testing.T) {
	r := New(Config{HomeUID: "home-uid", Objects: store(t, &v1alpha1.RemoteCluster{},
		remoteCluster("old", 1), remoteCluster("new", 2), remoteCluster("twin", 2))})
	for _, id := range []string{"old", "new", "twin"} {
		r.workers[id] = newClusterWorker(id, r.config)
	}
	reason, _ := r.unwanted("new", "uid")
	assert.Empty(t, reason, "as long as the older one is not known to lead there")
	reason, _ = r.unwanted("old", "uid")
	assert.Empty(t, reason)
	reason, sentence := r.unwanted("new", "uid")
	assert.Equal(t, "Duplicate", reason)
	assert.Contains(t, sentence, `RemoteCluster "old"`)
	reason, _ = r.unwanted("twin", "uid")
	assert.Equal(t, "Duplicate", reason)
	reason, _ = r.unwanted("twin", "another-uid")
	assert.Empty(t, reason, "once it leads elsewhere")
	reason, _ = r.unwanted("old", "home-uid")
	assert.Equal(t, "PointsHome", reason)
	reason, _ = r.unwanted("new", "")
	assert.Empty(t, reason, "what is not known is not held against it")
}

func TestWhatIsWrongWithASecretIsSaidInOneSentence(t *testing.T) {
	secrets := store(t, &corev1.Secret{},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "west"},
			Data: map[string][]byte{"kubeconfig": []byte("content")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "empty"}})
	kubeconfig := func(change func(*v1alpha1.SecretKeyRef)) ([]byte, error) {
		remote := remoteCluster("west", 1)
		change(&remote.Spec.KubeconfigSecretRef)
		return newClusterWorker("west", Config{Namespace: "system", Secrets: secrets}).kubeconfig(remote)
	}
	data, err := kubeconfig(func(*v1alpha1.SecretKeyRef) {})
	require.NoError(t, err)
	assert.Equal(t, "content", string(data))
	_, err = kubeconfig(func(ref *v1alpha1.SecretKeyRef) { ref.Namespace = "elsewhere" })
	require.ErrorContains(t, err, "must be in namespace system")
	_, err = kubeconfig(func(ref *v1alpha1.SecretKeyRef) { ref.Name = "none" })
	require.ErrorContains(t, err, "there is no Secret system/none: create it")
	_, err = kubeconfig(func(ref *v1alpha1.SecretKeyRef) { ref.Name = "empty" })
	require.ErrorContains(t, err, "has no key kubeconfig")
	_, err = kubeconfig(func(ref *v1alpha1.SecretKeyRef) { ref.Key = "other" })
	require.ErrorContains(t, err, "has no key other")
}

func TestASessionIsRenewedForWhatItDependsOnAndNothingElse(t *testing.T) {
	first := fingerprint(remoteCluster("west", 1), []byte("a"))
	same := remoteCluster("west", 1)
	same.Labels, same.Spec.StorageClassName = map[string]string{"a": "b"}, "fast"
	same.Status.Volumes = 3
	assert.Equal(t, first, fingerprint(same, []byte("a")))
	assert.NotEqual(t, first, fingerprint(same, []byte("b")))
	routed := remoteCluster("west", 1)
	routed.Spec.PodNetwork = v1alpha1.Routed
	assert.NotEqual(t, first, fingerprint(routed, []byte("a")))
	ranged := remoteCluster("west", 1)
	ranged.Spec.PodCIDRs = []string{"10.1.0.0/16"}
	assert.NotEqual(t, first, fingerprint(ranged, []byte("a")))
	again := remoteCluster("west", 1)
	again.UID = "another"
	assert.NotEqual(t, first, fingerprint(again, []byte("a")))
}
