// Package confirm is the command confirm: an administrator says that this home cluster, and no copy of it,
// acts in a remote cluster. Judge decides whether there is anything to confirm.
package confirm

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Options are the flags of confirm.
type Options struct {
	Yes     bool
	Timeout time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Timeout: 3 * time.Minute}
	command := &cobra.Command{
		Use:   "confirm REMOTECLUSTER",
		Short: "Confirm that this home cluster, and no copy of it, acts in a remote cluster",
		Long: `Confirm ends the doubt of a home cluster that was restored from a backup, or whose
remote cluster was: it then acts there again, and every other copy of it stops.

Stop the other copies first. This home cluster takes over only once the mark in the
remote cluster has stood still for a while; if another copy still renews it, nothing
is taken over. What this home cluster does not know of, since it was made after the
backup, it neither uses nor deletes there.`,
		Example: `  # This home cluster was restored from a backup, and the old one is gone for ever
  kubectl lodestone confirm west`,
		Args:              cli.TakesOne(cli.RemoteCluster),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.RemoteCluster}),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.RemoteCluster)
			if err != nil {
				return err
			}
			if o.Timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 3m")
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			c := &confirmation{Options: *o, Reporter: cli.Reporter{Out: streams.ErrOut}, home: home, name: named.Name, streams: streams}
			ctx, cancel := cli.Within(cmd.Context(), o.Timeout)
			defer cancel()
			return c.run(ctx)
		},
	}
	command.Flags().BoolVar(&o.Yes, "yes", o.Yes, "do not ask")
	command.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; home takes over even if the "+
		"command has ended before")
	return command
}

// confirmation is one run of the command.
type confirmation struct {
	Options
	cli.Reporter
	home    *cli.Cluster
	name    string
	streams genericiooptions.IOStreams
}

func (c *confirmation) run(ctx context.Context) error {
	remote, record, err := c.observe(ctx)
	if err != nil {
		return err
	}
	if err := Judge(remote, record); err != nil {
		return err
	}
	doubt := record.Doubt
	if remote.Annotations[keys.ConfirmedHome] != doubt.ID {
		c.Say("%s", Known(remote, record))
		c.Say("If another copy of this home cluster acts there, both would write to the same volumes and run the same pods.\n"+
			"Go on only if you have stopped every other copy, for good: also one that cannot reach cluster %q now.", c.name)
		if err := cli.Ask(ctx, c.streams.In, c.streams.ErrOut, c.Yes, c.name); err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": remote.UID,
			"annotations": map[string]string{keys.ConfirmedHome: doubt.ID}}})
		if err != nil {
			return fmt.Errorf("encode RemoteCluster: %w", err)
		}
		if _, err := c.home.Remotes.Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return c.home.Explain("patch RemoteCluster "+c.name, err)
		}
	}
	err = c.Await(ctx, fmt.Sprintf("this home cluster to act in %q", c.name), func(ctx context.Context) (string, bool, error) {
		remote, record, err := c.observe(ctx)
		switch {
		case err != nil:
			return "", false, err
		case record != nil && record.Doubt != nil && record.Doubt.ID != doubt.ID:
			return "", false, cli.Refuse("another copy of this home cluster acts in %q: it has renewed its mark or sent a heartbeat there, "+
				"so nothing was taken over; stop that copy, then run the same command again", c.name)
		}
		state := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce)
		if state == nil {
			return "", false, nil
		}
		return state.Message, state.Status == metav1.ConditionTrue && (record == nil || record.Doubt == nil), nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.streams.Out, "remotecluster.lodestone.dev/%s confirmed\n", c.name)
	return err
}

// observe reads the RemoteCluster, and what home has recorded of its mark there, nil if nothing.
func (c *confirmation) observe(ctx context.Context) (*v1alpha1.RemoteCluster, *homeepoch.Record, error) {
	remote, err := c.home.Remotes.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, c.home.Missing(ctx, cli.RemoteCluster, "", c.name)
	}
	if err != nil {
		return nil, nil, c.home.Explain("get RemoteCluster "+c.name, err)
	}
	ref := types.NamespacedName{Namespace: remote.Spec.KubeconfigSecretRef.Namespace, Name: homeepoch.SecretName(c.name)}
	secret, err := c.home.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return remote, nil, nil
	}
	if err != nil {
		return nil, nil, c.home.Explain("get Secret "+ref.String(), err)
	}
	record, err := homeepoch.ParseRecord(secret.Data[homeepoch.SecretKey])
	if err != nil {
		return nil, nil, fmt.Errorf("the Secret %s cannot be read: %w", ref, err)
	}
	return remote, record, nil
}

// Judge returns why there is nothing to confirm, nil if there is. It is pure.
func Judge(remote *v1alpha1.RemoteCluster, record *homeepoch.Record) error {
	if record != nil && record.Doubt != nil && record.RemoteCluster == string(remote.UID) {
		return nil
	}
	if meta.IsStatusConditionTrue(remote.Status.Conditions, v1alpha1.HomeInForce) {
		return cli.Refuse("this home cluster acts in %q already: there is nothing to confirm", remote.Name)
	}
	state := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce)
	if state == nil {
		return cli.Refuse("the provisioner has not looked yet which home cluster acts in %q: see whether it runs (kubectl get pods -n "+
			"lodestone-system)", remote.Name)
	}
	return cli.Refuse("this home cluster is in no doubt about %q, so there is nothing to confirm: %s", remote.Name, state.Message)
}

// Known says what is known of the mark. It is pure.
func Known(remote *v1alpha1.RemoteCluster, record *homeepoch.Record) string {
	text := fmt.Sprintf("Mark in cluster %q: %s; this home cluster wrote: %s. In doubt since %s (%s).", remote.Name,
		record.Doubt.Found, record.Next,
		record.Doubt.Since.Format(time.RFC3339), record.Doubt.Reason)
	if state := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce); state != nil {
		text += "\n" + state.Message
	}
	return text
}
