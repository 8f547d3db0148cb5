import argparse

import dist_utils


def get_args_parser():
    parser = argparse.ArgumentParser("pre-training", add_help=False)
    parser.add_argument("--batch_size", default=64, type=int)
    parser.add_argument("--epochs", default=400, type=int)
    return parser


def main(args):
    dist_utils.init_distributed_mode(args)
    print(f"{args.epochs} epochs, effective batch size {args.batch_size * args.world_size}")


if __name__ == "__main__":
    main(get_args_parser().parse_args())
