package plugin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestWhySaysWhatAPodAndAClaimWaitFor(t *testing.T) {
	peered(t)
	namespace := testbed.Namespace(t, bed.Home)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "data", fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	says(t, "waits for a pod that uses it", "pvc", "data", "-n", namespace)

	_, err = bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.InWest(fabric.NewPod(namespace, "web", "data")), metav1.CreateOptions{})
	require.NoError(t, err)
	says(t, "waits until its pod \"web\" has a node", "pvc", "data", "-n", namespace)
	says(t, "is to run in cluster \"west\", but namespace \""+namespace+"\" is not open to remote clusters: kubectl label namespace", "pod", "web", "-n", namespace)

	_, err = bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.NewPod(namespace, "lonely", "absent"), metav1.CreateOptions{})
	require.NoError(t, err)
	says(t, "claim \"absent\" does not exist: create it", "pod", "lonely", "-n", namespace)

	r := lodestone(t, "why", "pod", "nobody", "-n", namespace).ends(t, failed)
	assert.Contains(t, r.stderr, `there is no pod "nobody"`)
	lodestone(t, "why", "pod").ends(t, usage)
	lodestone(t, "why", "pod", "web", "-o", "wide").ends(t, usage)

	t.Run("as JSON", func(t *testing.T) {
		var answer struct {
			Sentence string
			Waiting  bool
			Facts    []string
		}
		require.NoError(t, json.Unmarshal([]byte(lodestone(t, "why", "pod", "web", "-n", namespace, "-o", "json").ends(t, done).out), &answer))
		assert.True(t, answer.Waiting)
		assert.NotEmpty(t, answer.Facts)
	})
}

func TestWhySaysWhoRefusedAClaim(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	_, err := bed.West.Client().CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "the quota counts", func() bool {
		quota, err := bed.West.Client().CoreV1().ResourceQuotas(namespace).Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && quota.Status.Hard != nil
	})
	_, err = bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "data", fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.InWest(fabric.NewPod(namespace, "web", "data")), metav1.CreateOptions{})
	require.NoError(t, err)
	says(t, "was refused by cluster \"west\": the quota of namespace "+namespace, "pvc", "data", "-n", namespace)
	says(t, "has no node yet, for claim \"data\" was refused by cluster \"west\"", "pod", "web", "-n", namespace)

	r := lodestone(t, "status", "-n", namespace).ends(t, done)
	assert.Contains(t, r.out, "was refused by cluster")
}

// says waits until the first line of why says something.
func says(t *testing.T, what string, args ...string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(await.Long); time.Now().Before(deadline); time.Sleep(await.Often) {
		last = lodestone(t, append([]string{"why"}, args...)...).ends(t, done).out
		if sentence, _, _ := strings.Cut(last, "\n"); strings.Contains(sentence, what) {
			return
		}
	}
	require.Fail(t, "why does not say "+what, last)
}
