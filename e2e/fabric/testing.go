package fabric

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// This file is what tests do at home.

// Namespace makes a namespace of a new name in both clusters that home may use in west, and deletes it after the test. It skips the test
// unless tests may start clusters.
func (f *Fabric) Namespace(t testing.TB) string {
	t.Helper()
	namespace := testbed.Namespace(t, f.Home, f.West)
	if err := f.Bind(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// EmptyAfter deletes the pods and claims of a namespace after the test, and waits a while for what is behind them in west: with the
// namespace there home's rights go, too.
func (f *Fabric) EmptyAfter(t testing.TB, namespace string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		home, west := f.Home.Client().CoreV1(), f.West.Client().CoreV1()
		_ = home.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = home.PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		for ctx.Err() == nil {
			left, err := west.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID})
			if err == nil && len(left.Items) == 0 {
				return
			}
			time.Sleep(await.Often)
		}
	})
}

// CreateClaim creates a claim of home.
func (f *Fabric) CreateClaim(t testing.TB, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Create(t, f.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace), claim)
}

// CreatePod creates a pod of home.
func (f *Fabric) CreatePod(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return must.Create(t, f.Home.Client().CoreV1().Pods(pod.Namespace), pod)
}

// AwaitRunning waits until a pod of home runs, and returns the name of its node.
func (f *Fabric) AwaitRunning(t testing.TB, namespace, name string) string {
	t.Helper()
	var pod *corev1.Pod
	await.Until(t, "pod "+namespace+"/"+name+" runs", func() bool {
		pod = await.Pod(t, f.Home.Client(), namespace, name)
		return pod != nil && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
	}, func() any { return pod }, func() any { return await.Events(t, f.Home.Client(), namespace) })
	return pod.Spec.NodeName
}

// Folder returns the folder that stands for the real volume of a claim of home, wherever it is; empty while it has none. Pods must run as
// processes: see Options.Programs.
func (f *Fabric) Folder(t testing.TB, namespace, name string) string {
	t.Helper()
	claim := await.Claim(t, f.Home.Client(), namespace, name)
	if claim == nil || claim.Spec.VolumeName == "" {
		return ""
	}
	volume := await.Volume(t, f.Home.Client(), claim.Spec.VolumeName)
	if volume == nil {
		return ""
	}
	ref, err := backing.RefOf(volume)
	if err != nil {
		t.Fatal(err)
	}
	cluster := f.West
	if ref.Cluster == keys.Home {
		cluster = f.Home
	}
	return f.FolderOf(t, cluster, ref.Namespace, ref.Name)
}

// FolderOf returns the folder that stands for the volume of a real claim of a cluster; empty while it has none.
func (f *Fabric) FolderOf(t testing.TB, cluster *testbed.Cluster, namespace, name string) string {
	t.Helper()
	claim := await.Claim(t, cluster.Client(), namespace, name)
	if claim == nil || claim.Spec.VolumeName == "" {
		return ""
	}
	volume := await.Volume(t, cluster.Client(), claim.Spec.VolumeName)
	if volume == nil {
		return ""
	}
	path, err := f.Disks.Of(volume)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
