package cli

import (
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestClaimsOfAStatefulSet(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(2)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 3},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "log"}}},
	}}
	assert.Equal(t, [][]string{{"data-db-3", "log-db-3"}, {"data-db-4", "log-db-4"}}, claimsOfReplicas(set))
	set.Spec.Replicas = ptr.To(int32(0))
	assert.Empty(t, claimsOfReplicas(set))
}

func TestAStatefulSetWithoutReplicasIsAnsweredWithTheClaimsThatItHasLeft(t *testing.T) {
	set := func(name string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas:             ptr.To(int32(0)),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}}}
	}
	objects := []runtime.Object{set("db"), set("gone")}
	for _, name := range []string{"data-db-1", "data-db-0", "data-db-x", "data-dbx-0", "log-db-0"} {
		objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	client := fake.NewClientset(objects...)
	home := &Cluster{Client: client}
	of := func(name string) error {
		_, err := home.ClaimsOf(t.Context(), "shop", Reference{Kind: StatefulSet, Name: name}, "move")
		assert.Equal(t, Refused, ExitCodeOf(err))
		return err
	}
	require.EqualError(t, of("db"), "statefulset shop/db has no replicas: to move the claims that earlier replicas have left, name them: "+
		"data-db-0 data-db-1")
	require.EqualError(t, of("gone"), "statefulset shop/gone has no replicas and has left no claims, so there is nothing to move")
	client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "", nil)
	})
	require.ErrorContains(t, of("db"), "that earlier replicas have left, name them; kubectl get pvc -n shop lists them")
}

func TestWhatIsMovedIsNamedInOneOfTheseWays(t *testing.T) {
	set := Reference{Kind: StatefulSet, Name: "db"}
	for name, row := range map[string]struct {
		args     []string
		workload Reference
		claims   []string
	}{
		"a claim":                       {args: []string{"data"}, claims: []string{"data"}},
		"a claim and its kind":          {args: []string{"pvc", "data"}, claims: []string{"data"}},
		"claims, one of them twice":     {args: []string{"log", "data", "pvc/log"}, claims: []string{"data", "log"}},
		"a claim with a command's name": {args: []string{"pvc/status"}, claims: []string{"status"}},
		"a StatefulSet":                 {args: []string{"statefulset", "db"}, workload: set},
		"a StatefulSet, short":          {args: []string{"sts/db"}, workload: set},
		"a Deployment":                  {args: []string{"deploy/db"}, workload: Reference{Kind: Deployment, Name: "db"}},
		"a pod":                         {args: []string{"pod", "db"}, workload: Reference{Kind: Pod, Name: "db"}},
		"a claim that is called so":     {args: []string{"pvc", "statefulset"}, claims: []string{"statefulset"}},
	} {
		workload, claims, err := ClaimsOrWorkload(&cobra.Command{}, row.args)
		require.NoError(t, err, name)
		assert.Equal(t, row.workload, workload, name)
		assert.Equal(t, row.claims, claims, name)
	}
	for _, args := range [][]string{{"job/db"}, {"sts/db", "data"}, {"sts", "db", "cache"}, {"volumemove/x"}, {"statefulset"}, {}} {
		_, _, err := ClaimsOrWorkload(&cobra.Command{}, args)
		assert.Equal(t, Usage, ExitCodeOf(err), "%v", args)
	}
}

func TestClaimsOfAWorkload(t *testing.T) {
	pod := corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"}}},
	}}
	object := metav1.ObjectMeta{Namespace: "shop", Name: "writer"}
	bare := metav1.ObjectMeta{Namespace: "shop", Name: "bare"}
	home := &Cluster{Client: fake.NewClientset(
		&appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		&appsv1.StatefulSet{ObjectMeta: object, Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		&corev1.Pod{ObjectMeta: object, Spec: pod}, &corev1.Pod{ObjectMeta: bare})}
	for _, kind := range []Kind{Deployment, StatefulSet, Pod} {
		groups, err := home.ClaimsOf(t.Context(), "shop", Reference{Kind: kind, Name: "writer"}, "move")
		require.NoError(t, err, kind)
		assert.Equal(t, [][]string{{"data", "log"}}, groups, kind)
		_, err = home.ClaimsOf(t.Context(), "shop", Reference{Kind: kind, Name: "none"}, "move")
		require.ErrorContains(t, err, fmt.Sprintf(`there is no %s "none" in namespace "shop"; there `, kind))
		require.ErrorContains(t, err, "writer")
	}
	_, err := home.ClaimsOf(t.Context(), "shop", Reference{Kind: Pod, Name: "bare"}, "move")
	require.EqualError(t, err, "pod shop/bare uses no claims, so there is nothing to move: name claims, or a workload that uses some")
}
