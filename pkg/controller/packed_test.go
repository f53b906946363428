package controller_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// fill sets every field of a value, with n in it.
func fill(v reflect.Value, n, depth int) {
	switch v.Interface().(type) {
	case metav1.TypeMeta:
		return // Informers have objects without it.
	case metav1.FieldsV1:
		v.Set(reflect.ValueOf(*metav1.NewFieldsV1(`{"f:a":{}}`)))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(int64(1_700_000_000+n), 0)))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(fmt.Sprintf("%dMi", n+1))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n + 1))
	case reflect.Uint8:
		v.SetUint(uint64(n + 1))
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), n, depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0), n, depth-1)
			fill(v.Index(1), n+1, depth-1)
		}
	case reflect.Map:
		if depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n, depth-1)
			fill(value, n, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), n+i, depth)
			}
		}
	default:
	}
}

// kind is a kind of object with the function that packs it.
type kind struct {
	object func() runtime.Object
	pack   func(runtime.Object) any
}

var kinds = map[string]kind{
	"claim": {func() runtime.Object { return &corev1.PersistentVolumeClaim{} },
		func(o runtime.Object) any { return controller.PackClaim(o.(*corev1.PersistentVolumeClaim)) }},
	"volume": {func() runtime.Object { return &corev1.PersistentVolume{} },
		func(o runtime.Object) any { return controller.PackVolume(o.(*corev1.PersistentVolume)) }},
	"pod": {func() runtime.Object { return &corev1.Pod{} }, func(o runtime.Object) any { return controller.PackPod(o.(*corev1.Pod)) }},
	"ShadowPod": {func() runtime.Object { return &remotev1alpha1.ShadowPod{} },
		func(o runtime.Object) any {
			shadow := o.(*remotev1alpha1.ShadowPod)
			shadow.Spec.Unreadable = ""
			return controller.PackShadowPod(shadow)
		}},
	"attachment": {func() runtime.Object { return &storagev1.VolumeAttachment{} },
		func(o runtime.Object) any { return controller.PackAttachment(o.(*storagev1.VolumeAttachment)) }},
}

func TestNothingIsLost(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			for n, object := range []runtime.Object{kind.object(), kind.object(), kind.object(), kind.object()} {
				if n > 0 { // The first has nothing, and the last two are equal.
					fill(reflect.ValueOf(object).Elem(), min(n, 2), 12)
				}
				if shadow, ok := object.(*remotev1alpha1.ShadowPod); ok {
					shadow.Spec.Unreadable = ""
				}
				before := object.DeepCopyObject()
				small := kind.pack(object)
				require.Implements(t, (*interface{ Unpack() any })(nil), small)
				for range 2 { // What was unpacked first may be changed.
					unpacked := controller.Unpacked(small)
					assert.True(t, equality.Semantic.DeepEqual(before, unpacked), "%v\n%v", before, unpacked)
					fill(reflect.ValueOf(unpacked).Elem(), 9, 12)
				}
			}
		})
	}
}

func TestACacheSeesWhatItNeeds(t *testing.T) {
	for name, kind := range kinds {
		object := kind.object()
		meta := object.(metav1.Object)
		meta.SetNamespace("shop")
		meta.SetName("data")
		meta.SetUID("uid")
		meta.SetResourceVersion("7")
		small := kind.pack(object)
		key, err := cache.MetaNamespaceKeyFunc(small)
		require.NoError(t, err)
		assert.Equal(t, "shop/data", key, name)
		assert.Equal(t, key, small.(interface{ Key() types.NamespacedName }).Key().String(), name)
		seen := small.(metav1.ObjectMetaAccessor).GetObjectMeta()
		assert.Equal(t, "7", seen.GetResourceVersion(), name)
		assert.EqualValues(t, "uid", seen.GetUID(), name)
	}
}

func TestAnObjectWhoseNamesAreTooLongStaysAsItIs(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", ResourceVersion: strings.Repeat("1", 256)}}
	assert.Same(t, claim, controller.PackClaim(claim))
	assert.Equal(t, "data", claim.Name)
}

func TestThePodsOfAWorkloadHaveTheirSpecInCommon(t *testing.T) {
	pod := func(n int, volumes ...string) *corev1.Pod {
		name := fmt.Sprintf("web-%d", n)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "web-"}, Spec: corev1.PodSpec{NodeName: name, Hostname: name,
			Containers: []corev1.Container{{Name: "web", Image: strings.Repeat("x", 10_000)}}}}
		for _, volume := range append(volumes, fmt.Sprintf("kube-api-access-%d", n)) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: volume})
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		return pod
	}
	for name, volumes := range map[string][]string{
		"as admission makes them": nil, "with a volume that looks like one of admission": {"kube-api-access-"},
	} {
		for n := range 2 {
			small := controller.PackPod(pod(n, volumes...))
			assert.Equal(t, pod(n, volumes...), controller.Unpacked(small), name)
			assert.Less(t, small.(interface{ Size() int }).Size(), 500, name)
		}
	}
	common := func(packed any) uintptr {
		return reflect.ValueOf(packed).Elem().FieldByName("common").Field(0).Pointer()
	}
	one, another := controller.PackPod(pod(1)), controller.PackPod(pod(2))
	assert.Equal(t, common(one), common(another), "it is in memory once")

	// In a remote cluster each has a ShadowPod of its own.
	made := func(n int) *corev1.Pod {
		made := pod(n)
		made.Annotations = map[string]string{keys.Pod: "shop/" + made.Name, keys.Applied: strings.Repeat("x", 1000)}
		made.OwnerReferences = []metav1.OwnerReference{{Kind: "ShadowPod", Name: made.Name, UID: types.UID(made.Name)}}
		return made
	}
	one, another = controller.PackPod(made(1)), controller.PackPod(made(2))
	assert.Equal(t, made(1), controller.Unpacked(one))
	assert.Equal(t, common(one), common(another))
	assert.Less(t, one.(interface{ Size() int }).Size(), 500)
}

func TestNoTimeOfAShadowPodBreaksIt(t *testing.T) {
	shadow := &remotev1alpha1.ShadowPod{}
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"name":"a","creationTimestamp":"9999-12-31T23:59:59-23:59"},"spec":{"home":{},`+
		`"pod":{"metadata":{"deletionTimestamp":"9999-12-31T23:59:59-23:59"}}}}`), shadow))
	want := shadow.CreationTimestamp
	unpacked, ok := controller.Unpacked(controller.PackShadowPod(shadow)).(*remotev1alpha1.ShadowPod)
	require.True(t, ok)
	assert.True(t, want.Equal(&unpacked.CreationTimestamp))
	assert.True(t, want.Equal(unpacked.Spec.Pod.DeletionTimestamp))
}

func TestAShadowPodThatCannotBeReadStaysAsItIs(t *testing.T) {
	shadow := &remotev1alpha1.ShadowPod{Spec: remotev1alpha1.ShadowPodSpec{Unreadable: "it is none"}}
	assert.Same(t, shadow, controller.PackShadowPod(shadow))
}

func TestWhatAnObjectHasIsMentioned(t *testing.T) {
	volume := controller.PackVolume(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "uid-of-volume", Annotations: map[string]string{"a": "in-annotation"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "uid-of-claim"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: "handle"}}},
	}).(interface{ Mentions(text string) bool })
	for _, text := range []string{"pvc-1", "uid-of-volume", "in-annotation", "uid-of-claim", "handle"} {
		assert.True(t, volume.Mentions(text), text)
	}
	assert.False(t, volume.Mentions("another"))
}
