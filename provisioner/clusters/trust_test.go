package clusters

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func shadowOf(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: "6a4f-1", ResourceVersion: "7", Labels: map[string]string{keys.HomeID: "here"}}}
	if change != nil {
		change(shadow)
	}
	return shadow
}

func TestTrustedTakesWhatAnAPIServerStores(t *testing.T) {
	shadow := shadowOf(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1.5Gi")}
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Ei")}
	})
	trusted, err := Trusted(shadow.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, shadow, trusted)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "v"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1e3")}}}
	trusted, err = Trusted(volume.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, volume, trusted)

	odd := volume.DeepCopy()
	odd.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"x", corev1.ReadWriteOnce, "y"}
	trusted, err = Trusted(odd)
	require.NoError(t, err)
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	assert.Equal(t, volume, trusted, "no other volume could have that")
}

func TestTrustedLeavesTheNameAloneOfWhatIsBroken(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"a UID that is a path":       func(c *corev1.PersistentVolumeClaim) { c.UID = "a/b" },
		"no UID":                     func(c *corev1.PersistentVolumeClaim) { c.UID = "" },
		"a name that is a path":      func(c *corev1.PersistentVolumeClaim) { c.Name = "../../secrets/x" },
		"a name with its namespace":  func(c *corev1.PersistentVolumeClaim) { c.Namespace, c.Name = "", "shop/data" },
		"a namespace that is a path": func(c *corev1.PersistentVolumeClaim) { c.Namespace = "shop/.." },
		"a long name":                func(c *corev1.PersistentVolumeClaim) { c.Name = strings.Repeat("a", 5000) },
		"more than an API server stores": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"x": strings.Repeat("x", maxObject)}
		},
		"owners without end": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = make([]metav1.OwnerReference, maxEntries+1)
		},
		"a long storage class": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = ptr.To(strings.Repeat("a", 300))
		},
		"a long version": func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = strings.Repeat("1", 100) },
	} {
		t.Run(name, func(t *testing.T) {
			broken := shadowOf(change)
			trusted, err := Trusted(broken.DeepCopy())
			require.NoError(t, err)
			assert.Equal(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: broken.Namespace, Name: broken.Name, ResourceVersion: broken.ResourceVersion}}, trusted)
		})
	}
	trusted, err := Trusted(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pv", UID: "v"}})
	require.NoError(t, err)
	assert.Equal(t, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pv"}}, trusted)
	trusted, err = Trusted(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "c"}, Provisioner: strings.Repeat("p", 300)})
	require.NoError(t, err)
	assert.Equal(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}, trusted)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mover", UID: "p"}, Status: corev1.PodStatus{PodIP: "10.1.2.3"}}
	trusted, err = Trusted(pod.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, pod, trusted)
	pod.UID = types.UID(strings.Repeat("p", 1<<20))
	trusted, err = Trusted(pod)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mover"}}, trusted)
}

func TestTrustedTakesSizesOffThatAreNone(t *testing.T) {
	for _, size := range []string{"1e1000", "-1Gi", "1e-1000", "99999999999999999999999Ei", "1e1000000000"} {
		trusted, err := Trusted(shadowOf(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}))
		require.NoError(t, err)
		shadow, ok := trusted.(*corev1.PersistentVolumeClaim)
		require.True(t, ok)
		assert.Equal(t, "here", shadow.Labels[keys.HomeID], "it is still known")
		if left, ok := shadow.Status.Capacity[corev1.ResourceStorage]; ok {
			assert.True(t, soundSize(left), size)
		}
	}
}

func TestAShadowUnderAnotherNameIsNotShown(t *testing.T) {
	c := connect(t.Context(), "west", fake.NewClientset(), "here", Hooks{Shadow: func(*corev1.PersistentVolumeClaim) {}, Seen: func(string, string) {}}, []string{"shop"}, func() {})
	watched := c.watch("shop")
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), watched.HasSynced))
	require.NoError(t, watched.GetStore().Add(shadowOf(func(c *corev1.PersistentVolumeClaim) { c.Namespace, c.Name = "", "shop/data" })))
	shadow := shadowOf(nil)
	assert.Nil(t, c.shadow(types.NamespacedName{Namespace: "shop", Name: "data"}))
	require.NoError(t, watched.GetStore().Add(shadow))
	assert.Equal(t, shadow, c.shadow(types.NamespacedName{Namespace: "shop", Name: "data"}))
}

// TestAServerThatGoesBackInTime is asked for its volumes: it was restored from a
// backup once its version is lower than one that it told before.
func TestAServerThatGoesBackInTime(t *testing.T) {
	version := "0"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, version)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	c := connect(t.Context(), "west", fake.NewClientset(), "here", Hooks{}, nil, func() {})
	c.client = client
	for _, row := range []struct {
		version string
		rewound bool
	}{{"100", false}, {"100", false}, {"250", false}, {"249", true}, {"90", true}, {"nonsense", false}, {"", false}, {"1000", false}, {"999", true}} {
		version = row.version
		rewound, err := c.rewound(t.Context())
		require.NoError(t, err)
		assert.Equal(t, row.rewound, rewound, row.version)
	}
}
