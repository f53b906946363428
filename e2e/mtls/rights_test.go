package mtls_test

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/extender/app"
)

// clientOf returns a client with the rights of a ServiceAccount.
func (w *world) clientOf(namespace, name string) kubernetes.Interface {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.account(namespace, name))
	require.NoError(w.t, err)
	return client
}

// requireFewRights checks who may read the authority's key, and that who makes
// the certificates may do nothing else.
func (w *world) requireFewRights() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, name := range []string{"lodestone-provisioner", "lodestone-extender"} {
		_, err := w.clientOf(system, name).CoreV1().Secrets(certificated).Get(ctx, app.AuthoritySecret, metav1.GetOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "%s reads the authority: %v", name, err)
	}
	job := w.clientOf(certificated, certificated).CoreV1()
	for _, namespace := range []string{system, certificated} {
		_, err := job.Secrets(namespace).List(ctx, metav1.ListOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "list Secrets of %s: %v", namespace, err)
		_, err = job.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "make a Secret in %s: %v", namespace, err)
	}
	_, err := job.Secrets(certificated).Get(ctx, app.ServerSecret, metav1.GetOptions{})
	assert.True(w.t, apierrors.IsForbidden(err), "%v", err)

	// What the manifests hold, applied again, leaves the Secrets filled.
	_, err = w.Kubectl(ctx, "", "apply", "-k", deploy("overlays", "release"))
	require.NoError(w.t, err)
}

// requireAdmitted checks that the pod of the Job is one that its namespace admits.
func (w *world) requireAdmitted() {
	w.t.Helper()
	job, err := w.Client().BatchV1().Jobs(certificated).Get(w.t.Context(), certificated, metav1.GetOptions{})
	require.NoError(w.t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "like-the-job"}, Spec: job.Spec.Template.Spec}
	_, err = w.Client().CoreV1().Pods(certificated).Create(w.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(w.t, err)
	// It names a command of the program.
	command, flags, err := app.NewCommand().Find(pod.Spec.Containers[0].Args)
	require.NoError(w.t, err)
	assert.Equal(w.t, "certificates", command.Name())
	assert.NoError(w.t, command.ParseFlags(flags))
}
