package replicate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Limits of spec.hooks.
const (
	leastFrozen = time.Second
	mostFrozen  = 2 * time.Minute
	mostWords   = 64
)

// checkFreeze returns what is wrong with the flags by which an application is frozen.
func (o *Options) checkFreeze() error {
	switch {
	case o.Freeze == "" && o.Thaw == "" && (o.FreezeIn != "" || o.freezeFor):
		return cli.Misuse("--freeze-container and --freeze-timeout are for --freeze: give --freeze and --thaw, too")
	case (o.Freeze == "") != (o.Thaw == ""):
		return cli.Misuse("--freeze and --thaw belong together: give both, as what is frozen must be thawed")
	case o.FreezeFor < leastFrozen || o.FreezeFor > mostFrozen:
		return cli.Misuse("--freeze-timeout %s is out of range: give a time from %s to %s", replica.Short(o.FreezeFor),
			leastFrozen, replica.Short(mostFrozen))
	}
	_, err := o.hooks()
	return err
}

// hooks are those that the flags ask for, nil for none.
func (o *Options) hooks() (*v1alpha1.ReplicaHooks, error) {
	if o.Freeze == "" {
		return nil, nil
	}
	freeze, err := words("--freeze", o.Freeze)
	if err != nil {
		return nil, err
	}
	thaw, err := words("--thaw", o.Thaw)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.ReplicaHooks{Freeze: freeze, Thaw: thaw, Container: o.FreezeIn, Timeout: &metav1.Duration{Duration: o.FreezeFor}}, nil
}

// words reads a command and its arguments: a JSON array, since no shell runs it.
func words(flag, text string) (command []string, err error) {
	if err := json.Unmarshal([]byte(text), &command); err != nil || len(command) == 0 || len(command) > mostWords {
		return nil, cli.Misuse(`%s %q is not a command: give a JSON array of the program and its arguments, such as '["touch","/run/frozen"]'`,
			flag, text)
	}
	for _, word := range command {
		if word == "" {
			return nil, cli.Misuse("%s %q has an empty argument: leave it out", flag, text)
		}
	}
	return command, nil
}

// provisioner is who runs the hooks.
const provisioner = "lodestone-system:lodestone-provisioner"

// bindingNeeded says by which command the provisioner gets the right to run hooks in the namespace; empty: it has it. Whoever may not ask
// that is told, too.
func (r *runner) bindingNeeded(ctx context.Context) (string, error) {
	if r.Freeze == "" {
		return "", nil
	}
	command := fmt.Sprintf("kubectl create rolebinding lodestone-freeze -n %s --clusterrole=lodestone-freeze --serviceaccount=%s", r.namespace,
		provisioner)
	review, err := r.home.Client.AuthorizationV1().LocalSubjectAccessReviews(r.namespace).Create(ctx,
		&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + provisioner,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.namespace, Verb: "create", Resource: "pods",
					Subresource: "exec"}}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "you may not see whether the provisioner may run the hooks in this namespace; who may bind roles here gives it that right with: " +
			command, nil
	case err != nil:
		return "", r.home.Explain("ask whether the provisioner may run commands in namespace "+r.namespace, err)
	case review.Status.Allowed:
		return "", nil
	}
	return "the provisioner may not run the hooks in this namespace yet, so no version is made: " + command, nil
}

// planFreeze says how the application would be frozen.
func planFreeze(hooks *v1alpha1.ReplicaHooks) string {
	if hooks == nil {
		return ""
	}
	where := "the first container of each pod that mounts a claim"
	if hooks.Container != "" {
		where = "container " + hooks.Container + " of each pod that mounts a claim"
	}
	return fmt.Sprintf("\nwhile a snapshot is taken the application is frozen, for %s at most, by %q and %q in %s",
		replica.Short(hooks.Timeout.Duration), strings.Join(hooks.Freeze, " "), strings.Join(hooks.Thaw, " "), where)
}
