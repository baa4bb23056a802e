-- The tables of a new DuckDB catalog, made of catalog/tables.py by `python -m viewcache.catalog.creating`.
CREATE TABLE counter (
    name TEXT NOT NULL,
    next_id BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE dataset (
    dataset_id BIGINT NOT NULL,
    uri TEXT NOT NULL,
    scanned_at DOUBLE PRECISION,
    PRIMARY KEY (dataset_id)
);
CREATE TABLE draw (
    task_id BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    video_id BIGINT NOT NULL
);
CREATE TABLE edge (
    parent_id BIGINT NOT NULL,
    child_id BIGINT NOT NULL,
    op TEXT NOT NULL,
    cost_s DOUBLE PRECISION NOT NULL
);
CREATE TABLE epoch_order (
    task_id BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    items BIGINT NOT NULL,
    version TEXT NOT NULL,
    word BIGINT,
    digest TEXT NOT NULL,
    PRIMARY KEY (task_id, epoch)
);
CREATE TABLE event (
    event_id BIGINT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    task_id BIGINT,
    object_id BIGINT,
    count BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    detail TEXT NOT NULL
);
CREATE TABLE eviction (
    object_id BIGINT NOT NULL,
    tier TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    reason TEXT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL,
    policy TEXT,
    detail TEXT
);
CREATE TABLE expected_use (
    object_id BIGINT NOT NULL,
    refs BIGINT NOT NULL,
    PRIMARY KEY (object_id)
);
CREATE TABLE generation (
    generation_id BIGINT NOT NULL,
    group_id BIGINT NOT NULL,
    task_id BIGINT NOT NULL,
    number INTEGER NOT NULL,
    first_epoch INTEGER NOT NULL,
    last_epoch INTEGER NOT NULL,
    objects BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    decode_s DOUBLE PRECISION NOT NULL,
    planned_at DOUBLE PRECISION NOT NULL,
    group_epoch INTEGER,
    grid INTEGER,
    PRIMARY KEY (generation_id)
);
CREATE TABLE io_sample (
    op TEXT NOT NULL,
    size_bucket INTEGER NOT NULL,
    codec TEXT NOT NULL,
    tier TEXT NOT NULL,
    n BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    bytes BIGINT NOT NULL,
    cpu_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (op, size_bucket, codec, tier)
);
CREATE TABLE item (
    item_id BIGINT NOT NULL,
    dataset_id BIGINT NOT NULL,
    video_id BIGINT NOT NULL,
    start_s DOUBLE PRECISION,
    end_s DOUBLE PRECISION,
    ordinal INTEGER NOT NULL,
    label TEXT
);
CREATE TABLE lease (
    object_id BIGINT NOT NULL,
    holder TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (object_id, holder)
);
CREATE TABLE object (
    object_id BIGINT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    video_id BIGINT,
    generation_id BIGINT NOT NULL,
    depth INTEGER NOT NULL,
    est_bytes BIGINT NOT NULL,
    cost_s DOUBLE PRECISION NOT NULL,
    keep BOOLEAN NOT NULL,
    shape TEXT NOT NULL,
    frame_start INTEGER,
    frame_stride INTEGER,
    frame_count INTEGER,
    frame_list INTEGER[]
);
CREATE TABLE object_copy (
    object_id BIGINT NOT NULL,
    tier TEXT NOT NULL,
    physical TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    codec TEXT NOT NULL,
    chunk_rows INTEGER NOT NULL,
    table_blob BYTEA NOT NULL,
    crc BIGINT NOT NULL,
    created_tick BIGINT NOT NULL,
    access_tick BIGINT NOT NULL,
    PRIMARY KEY (object_id, tier)
);
CREATE TABLE object_use (
    task_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    position INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    object_id BIGINT NOT NULL
);
CREATE TABLE pack_part (
    object_id BIGINT NOT NULL,
    place INTEGER NOT NULL,
    key TEXT NOT NULL,
    video_key TEXT NOT NULL,
    first_byte BIGINT NOT NULL,
    PRIMARY KEY (object_id, place)
);
CREATE TABLE policy (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    purpose TEXT NOT NULL,
    text TEXT NOT NULL,
    active BOOLEAN NOT NULL,
    problem TEXT,
    PRIMARY KEY (name)
);
CREATE TABLE setting (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE settled (
    task_id BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    positions BIGINT NOT NULL,
    PRIMARY KEY (task_id, epoch)
);
CREATE TABLE substitution (
    task_id BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    video_id BIGINT NOT NULL,
    policy TEXT NOT NULL,
    replacement_id BIGINT,
    reason TEXT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL
);
CREATE TABLE task (
    task_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    group_id BIGINT NOT NULL,
    dataset_id BIGINT NOT NULL,
    definition_key TEXT NOT NULL,
    definition TEXT NOT NULL,
    epochs INTEGER NOT NULL,
    videos_per_batch INTEGER NOT NULL,
    samples_per_video INTEGER NOT NULL,
    frames_per_clip INTEGER NOT NULL,
    frame_stride INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    drop_last BOOLEAN NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE TABLE task_group (
    group_id BIGINT NOT NULL,
    dataset_id BIGINT NOT NULL,
    PRIMARY KEY (group_id)
);
CREATE TABLE task_progress (
    task_id BIGINT NOT NULL,
    rank INTEGER NOT NULL,
    part INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    seq BIGINT NOT NULL,
    seconds_per_iteration DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (task_id, rank, part)
);
CREATE TABLE tier (
    tier TEXT NOT NULL,
    url TEXT NOT NULL,
    budget_bytes BIGINT NOT NULL,
    PRIMARY KEY (tier)
);
CREATE TABLE used (
    kind TEXT NOT NULL,
    stage TEXT NOT NULL,
    cpu_s DOUBLE PRECISION,
    wall_s DOUBLE PRECISION,
    joules DOUBLE PRECISION NOT NULL,
    source TEXT NOT NULL,
    since_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (kind, stage)
);
CREATE TABLE version_run (
    version TEXT NOT NULL,
    first_place BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    items BIGINT NOT NULL
);
CREATE TABLE video (
    video_id BIGINT NOT NULL,
    dataset_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    uri TEXT NOT NULL,
    size_bytes BIGINT,
    mtime_ns BIGINT,
    etag TEXT,
    key TEXT NOT NULL,
    frames BIGINT,
    fps DOUBLE PRECISION,
    duration_s DOUBLE PRECISION,
    width INTEGER,
    height INTEGER,
    rotation INTEGER,
    codec TEXT,
    pix_fmt TEXT,
    color_space TEXT,
    color_range TEXT,
    keyframes INTEGER,
    gop_max INTEGER,
    status TEXT NOT NULL,
    error_kind TEXT,
    error TEXT,
    label TEXT,
    index_at BIGINT,
    time_first BIGINT,
    time_step BIGINT,
    time_numerator BIGINT,
    time_denominator BIGINT,
    PRIMARY KEY (video_id)
);
CREATE TABLE video_column (
    video_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    text_value TEXT,
    number_value DOUBLE PRECISION
);
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    PRIMARY KEY (version_num)
);
INSERT INTO alembic_version (version_num) VALUES ('0015');
