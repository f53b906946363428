package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// counter is the application: in each of its volumes it goes on counting from the last
// number in its log there, and has each line on the disk before it counts on. With the
// number it writes who it is.
func (t trip) counter() string {
	var begin, count, logs strings.Builder
	for i, claim := range t.claims {
		read, write := fmt.Sprintf(`tail -n 1 /%s/log`, claim), fmt.Sprintf(`echo "$n%d $$" >> /%s/log`, i, claim)
		if t.block {
			read = fmt.Sprintf(`head -c %d /%s | tr -d '\0' | tail -n 1`, linesSize, claim)
			write = fmt.Sprintf(`printf '%%-%ds\n' "$n%d $$" | dd of=/%s bs=%d seek=$((n%d-1)) conv=notrunc,fsync status=none`, lineSize-1, i, claim, lineSize, i)
		} else {
			fmt.Fprintf(&logs, " /%s/log", claim)
		}
		fmt.Fprintf(&begin, "n%[1]d=$(%[2]s 2>/dev/null || true); n%[1]d=${n%[1]d%%%% *}; n%[1]d=${n%[1]d:-0}\n", i, read)
		fmt.Fprintf(&count, "n%[1]d=$((n%[1]d+1)); %[2]s\n", i, write)
	}
	if !t.block {
		fmt.Fprintf(&count, "sync%s\n", logs.String())
	}
	return begin.String() + "while :; do\n" + count.String() + "sleep 0.4\ndone"
}

// deploy makes the Deployment of a case.
func (w *World) deploy(ctx context.Context, c *Case, t trip) error {
	pod := fabric.NewPod(c.Namespace, "", t.claims...)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	app := corev1.Container{Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", t.counter()}}
	for _, claim := range t.claims {
		if t.block {
			app.VolumeDevices = append(app.VolumeDevices, corev1.VolumeDevice{Name: claim, DevicePath: "/" + claim})
		} else {
			app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
		}
	}
	pod.Spec.Containers = []corev1.Container{app}
	labels := map[string]string{"app": "counter"}
	_, err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "counter"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

// undeploy removes the Deployment of a case, if it has one.
func (w *World) undeploy(ctx context.Context, c *Case) error {
	if w.moves == nil {
		return nil
	}
	err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Delete(ctx, "counter", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

// continues says what is wrong with the application's log in a volume: it must begin
// with all that was written at the source, and count on without a gap.
func continues(log, source string) (lines int, err error) {
	whole := source[:strings.LastIndex(source, "\n")+1]
	if !strings.HasPrefix(log, whole) {
		return 0, errors.New("the log does not begin with what was written before the move")
	}
	log = log[:strings.LastIndex(log, "\n")+1]
	for line := range strings.Lines(log) {
		lines++
		if !strings.HasPrefix(line, fmt.Sprintf("%d ", lines)) {
			return 0, fmt.Errorf("line %d of the log is %q", lines, line)
		}
	}
	return lines, nil
}
