/** Small drawings of 16 × 16 px in the colour of the text; never the only sign of anything. */
const PATHS = {
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  compute: "M3 3.5h10v4H3zM3 8.5h10v4H3zM5.5 5.5h.01M5.5 10.5h.01",
  environments: "M8 1.8 13.5 5v6L8 14.2 2.5 11V5zM2.5 5 8 8.2 13.5 5M8 8.2v6",
  data: "M3 4c0-2.4 10-2.4 10 0v8c0 2.4-10 2.4-10 0zM3 4c0 2.4 10 2.4 10 0M3 8c0 2.4 10 2.4 10 0",
  models: "M4 4.5a1.5 1.5 0 1 0 0-.01M12 4.5a1.5 1.5 0 1 0 0-.01M8 12.5a1.5 1.5 0 1 0 0-.01M4.8 5.3l2.5 5.6M11.2 5.3l-2.5 5.6M5.5 4h5",
  endpoints: "M2 8h3.5M10.5 8H14M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM12 5.8 14.2 8 12 10.2",
  settings: "M2.5 5h6M12.5 5h1M2.5 11h1M7.5 11h6M10.5 3.2v3.6M5.5 9.2v3.6",
  compare: "M2.5 2.5v11h11M4.8 10.5c2.2 0 2.4-5.2 8.2-5.6M4.8 6.2c3.4 0 3.6 4 8.2 4",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.4 3.4",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M2.5 13.5h11",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  group: "M2.5 3.5h11M5 7h8.5M5 10h8.5M2.5 13h0",
  stop: "M4.5 4.5h7v7h-7z",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  clone: "M6 2.5h7.5V10M2.5 6H10v7.5H2.5zM6.2 7.8v3.8M4.3 9.7h3.8",
  tag: "M2.5 7.5v-5h5l6 6-5 5zM5.2 5.2h.01",
  archive: "M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.8h3",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.2v1.4M8 13.4v1.4M1.2 8h1.4M13.4 8h1.4M3.2 3.2l1 1M11.8 11.8l1 1M12.8 3.2l-1 1M4.2 11.8l-1 1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  screen: "M2 3h12v8H2zM6 13.5h4",
  file: "M4 1.8h5l3.2 3.2v9.2H4zM9 1.8V5h3.2",
  folder: "M1.8 4h4.5l1.4 1.6h6.5v7.2H1.8z",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.2 1.6",
  warn: "M8 2.2 14.4 13.4H1.6zM8 6.4v3.2M8 11.5h.01",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7.4v3.4M8 5.2h.01",
  wrap: "M2.5 4h11M2.5 8h8.5a2 2 0 0 1 0 4H8M9.5 10.4 8 12l1.5 1.6M2.5 12h2.5",
  follow: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13.5h10",
  out: "M6.5 3H3v10h3.5M9.5 5 12.5 8l-3 3M12.5 8H6",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  zoomout: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.4 3.4M5 7h4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
