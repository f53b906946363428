package podparts_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/podparts"
)

// fill sets every field of a value that can be set to something else than its zero value, with n in it.
func fill(v reflect.Value, n, depth int) {
	switch v.Interface().(type) {
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
				fill(v.Field(i), n, depth-1)
			}
		}
	default:
	}
}

func full(n int) *corev1.Pod {
	pod := &corev1.Pod{}
	fill(reflect.ValueOf(pod).Elem(), n, 14)
	pod.ManagedFields = nil
	return pod
}

func TestAPodThatSharesItsPartsIsTheSame(t *testing.T) {
	for _, n := range []int{0, 1, 0, 2} {
		want, pod := full(n), full(n)
		podparts.Share(pod)
		assert.True(t, equality.Semantic.DeepEqual(want, pod), "pod %d", n)
		podparts.Share(pod)
		assert.True(t, equality.Semantic.DeepEqual(want, pod), "pod %d, shared again", n)
		template := corev1.PodTemplateSpec{ObjectMeta: *full(n).ObjectMeta.DeepCopy(), Spec: *full(n).Spec.DeepCopy()}
		podparts.Template(&template)
		assert.True(t, equality.Semantic.DeepEqual(want.Spec, template.Spec), "template %d", n)
	}
	// One field that differs is a part that differs.
	other := full(0)
	other.Spec.Containers[0].Env[0].Value = "another"
	other.Spec.Volumes[0].Projected.Sources[0].Secret.Name = "another"
	other.Spec.TerminationGracePeriodSeconds = nil
	want := other.DeepCopy()
	podparts.Share(other)
	assert.True(t, equality.Semantic.DeepEqual(want, other))
}

func TestPodsOfOneTemplateShareTheirParts(t *testing.T) {
	one, two := full(7), full(7)
	two.Name, two.UID, two.Spec.NodeName, two.Spec.Hostname = "two", "two", "node-2", "two"
	two.Spec.Containers[0].VolumeMounts[0].Name = "kube-api-access-2"
	two.Spec.Volumes[0].Name = "kube-api-access-2"
	two.Status.ContainerStatuses[0].ContainerID = "two"
	podparts.Share(one)
	podparts.Share(two)
	same := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	assert.True(t, same(one.Labels, two.Labels))
	assert.True(t, same(one.OwnerReferences, two.OwnerReferences))
	assert.True(t, same(one.Spec.Tolerations, two.Spec.Tolerations))
	assert.True(t, same(one.Spec.Containers[0].Env, two.Spec.Containers[0].Env))
	assert.True(t, same(one.Spec.Containers[0].Resources.Requests, two.Spec.Containers[0].Resources.Requests))
	assert.True(t, same(one.Spec.Volumes[0].Projected, two.Spec.Volumes[0].Projected))
	assert.Equal(t, "kube-api-access-2", two.Spec.Containers[0].VolumeMounts[0].Name)
	assert.Equal(t, "two", two.Status.ContainerStatuses[0].ContainerID)
	assert.NotEqual(t, "two", one.Status.ContainerStatuses[0].ContainerID)
}
