package flow

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
)

// The remote agent makes shadows anew that are being deleted and have our
// finalizer. One that home deletes must at no moment look like that.
func TestAShadowThatHomeDeletesNeverLooksAsIfSomebodyElseDid(t *testing.T) {
	for end := 1; end <= 3; end++ {
		shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "b1", Finalizers: []string{keys.BackingFinalizer, "kubernetes.io/pvc-protection"}}}
		client := fake.NewClientset(shadow)
		var verbs []string
		client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if verbs = append(verbs, action.GetVerb()); len(verbs) == end {
				return true, nil, errors.New("killed")
			}
			return false, nil, nil
		})
		f := New(Config{Client: client, Clusters: clusters.New(clusters.Config{})})
		err := f.endShadow(t.Context(), client.CoreV1().PersistentVolumeClaims("shop"), "west", shadow)
		now, lookErr := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "shop", "data")
		switch end {
		case 1:
			require.Error(t, err)
			require.NoError(t, lookErr)
			assert.True(t, backing.Protected(now.(*corev1.PersistentVolumeClaim)), "nothing was done")
		case 2:
			require.Error(t, err)
			require.NoError(t, lookErr)
			assert.False(t, backing.Protected(now.(*corev1.PersistentVolumeClaim)), "it is let go before it is deleted")
		default:
			require.NoError(t, err)
			assert.Equal(t, []string{"patch", "delete"}, verbs)
		}
	}
}
