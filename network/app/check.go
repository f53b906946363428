package app

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/path"
)

// newAnswer returns the command of a pod that answers, and newCheck that which is run in it: kubectl lodestone network test does so.
func newAnswer() *cobra.Command {
	return &cobra.Command{
		Use:   "answer",
		Short: "Answer probes at all addresses of this pod, and do nothing else",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := path.Serve(cmd.Context(), netip.AddrPortFrom(netip.IPv4Unspecified(), path.Port)); err != nil {
				return err
			}
			if lane.HasIPv6() {
				if err := path.Serve(cmd.Context(), netip.AddrPortFrom(netip.IPv6Unspecified(), path.Port)); err != nil {
					return err
				}
			}
			<-cmd.Context().Done()
			return nil
		},
	}
}

func newCheck() *cobra.Command {
	own, to, while := os.Getenv("POD_IP"), "", 15*time.Second
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try packets and connections of several sizes to a pod that answers, and print what became of them, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := netip.ParseAddr(own)
			if err != nil {
				return fmt.Errorf("--address=%q is no address: give that by which the other pod sees this one", own)
			}
			other, err := netip.ParseAddr(to)
			if err != nil {
				return fmt.Errorf("--to=%q is no address: give that of a pod that answers", to)
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(path.Check(cmd.Context(), from, other, while))
		},
	}
	cmd.Flags().StringVar(&own, "address", own, "address by which the other pod sees this one; default: the variable POD_IP")
	cmd.Flags().StringVar(&to, "to", to, "address of the pod that answers")
	cmd.Flags().DurationVar(&while, "wait", while, "how long to wait for a first answer")
	return cmd
}
